"""A row of each paper trains with the paper's backbone, at random weights and in small batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.cli.main import main
from tests.papers import full_trees
from tests.papers.sources import FOLDER

# A cell, and how many images of a class its batches of eight have.
CELLS = {
    "ddml": ("table1_cub_normsoftmax/DDML(+NS)", 2),
    "detreg": ("table1_cub/Ours 512", 2),
    "dvml": ("table3_cub/DVML+N-pair", 2),
    "idml": ("table1_cub/IDML-PA", 2),
    "nir": ("table1_cub/ProxyAnchor + NIR", 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_a_row_trains(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "CUB_200_2011").mkdir()
    full_trees.cub200(tmp_path / "CUB_200_2011")
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    cell, each = CELLS[name]
    smaller = {
        "backbone.weights": "none",
        "training.batch_size": 8,
        "training.per_class": each,
        "training.epochs": 1,
        "schedule.name": "constant",
        "schedule.milestones": "null",
        "schedule.counted_from": "null",
        "schedule.warmup_epochs": 0,
    }
    given = [part for path, value in smaller.items() for part in ("--set", f"{path}={value}")]
    study = cell.split("/", maxsplit=1)[0]
    asked = ["--cell", f"{cell}@0", "--study", study, "--allow-partial", "--device", "cpu"]
    place = ["--out", str(tmp_path / "runs")]
    assert main(["run", str(FOLDER / f"{name}.yaml"), *asked, *place, *given]) == 0
    assert "test/recall_at_1" in capsys.readouterr().out
