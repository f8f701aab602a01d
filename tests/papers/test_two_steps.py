"""A row of each paper trains with the paper's backbone, at random weights and in small batches."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from ablate.cli.main import main
from tests.papers.sources import FOLDER
from tests.trainables.data import trees


class Case(NamedTuple):
    """cell: of a paper's file. each: images of a class in its batches of eight; None: as there."""

    cell: str
    each: int | None = 2
    data: str = "CUB_200_2011"
    metric: str = "recall_at_1"


CIFAR = ("cifar-100-python", "top_1_accuracy")
IMAGENET = ("imagenet", "top_1_accuracy")
CASES = {
    "ddml": Case("ddml/table1_cub_normsoftmax/DDML(+NS)"),
    "detreg": Case("detreg/table1_cub/Ours 512"),
    "dvml": Case("dvml/table3_cub/DVML+N-pair"),
    "idml": Case("idml/table1_cub/IDML-PA"),
    "nir": Case("nir/table1_cub/ProxyAnchor + NIR"),
    "pyramidnet": Case("idml/table2_cifar100/IDML-Mixup", None, *CIFAR),
    "resnet": Case("idml/code_imagenet/IDML-Cutmix", None, *IMAGENET),
    "deit": Case("idml/table9/DeiT-Ti-IDML", None, *IMAGENET),
}


PLANTED = {
    "CUB_200_2011": trees.cub200,
    "cifar-100-python": partial(trees.cifar100_python, count=20),
    "imagenet": trees.imagenet,
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_row_trains(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    PLANTED[case.data](tmp_path / case.data)
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    name, cell = case.cell.split("/", maxsplit=1)
    smaller: dict[str, object] = {
        "backbone.weights": "none",
        "training.batch_size": 8,
        "training.epochs": 1,
        "schedule.name": "constant",
        "schedule.milestones": "null",
        "schedule.counted_from": "null",
        "schedule.warmup_epochs": 0,
        "schedule.warmup_hold": "null",
    }
    if case.each is not None:
        smaller["training.per_class"] = case.each
    settings = [part for path, value in smaller.items() for part in ("--set", f"{path}={value}")]
    study = cell.split("/", maxsplit=1)[0]
    options = ["--cell", f"{cell}@0", "--study", study, "--allow-partial", "--device", "cpu"]
    output = ["--out", str(tmp_path / "runs")]
    assert main(["run", str(FOLDER / f"{name}.yaml"), *options, *output, *settings]) == 0
    assert f"test/{case.metric}" in capsys.readouterr().out
