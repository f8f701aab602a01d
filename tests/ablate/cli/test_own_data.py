"""The README's own experiment on folders of few classes, and batches that these cannot fill."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.cli.main import main
from ablate.ledger.ledger import Ledger
from tests.ablate.command import ROOT, ablate_run
from tests.documented import blocks
from tests.trainables.data import trees

Captured = pytest.CaptureFixture[str]


@pytest.fixture(params=[6, 40])
def birds(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return trees.class_folders(tmp_path / "birds", request.param, 3, (40, 32))


def readme(birds: Path) -> dict[str, Any]:
    """my.yaml as the README has it, with the folder."""
    (text,) = re.findall(r"```yaml\n# my\.yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert "root: /data/birds" in text
    found: dict[str, Any] = yaml.safe_load(text.replace("/data/birds", str(birds)))
    return found


def planned(
    spec: dict[str, Any], folder: Path, capsys: Captured, *more: str
) -> tuple[int, str, str]:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    code = main(["run", str(path), "--plan", "--out", str(folder / "runs"), *more])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_readmes_experiment_can_be_planned(
    birds: Path, tmp_path: Path, capsys: Captured
) -> None:
    code, out, err = planned(readme(birds), tmp_path, capsys)
    assert code == 0 and not err
    few = len(list(birds.iterdir())) == 6
    assert (
        "tune, terms: the best epoch and settings are selected on images of a single class" in out
    ) == few
    assert (
        ", where every neighbour is correct. Raise data.split.validation (now 0.3)." in out
    ) == few


@pytest.mark.slow
@pytest.mark.usefixtures("preloaded_trials")
def test_the_readmes_experiment_runs(birds: Path, tmp_path: Path) -> None:
    """Its command, in a process of its own; fewer trials of one epoch, and of the larger folder
    the search alone, for time."""
    spec, few = readme(birds), len(list(birds.iterdir())) == 6
    spec["seeds"], spec["trial"]["training"]["epochs"] = 1, 1
    spec["studies"]["tune"]["trials"] = 2
    spec["studies"]["terms"]["components"].popitem()
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    options = () if few else ("--study", "tune", "--no-report")
    done = ablate_run(tmp_path, "my.yaml", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    with Ledger(tmp_path / "runs" / "ledger.sqlite") as ledger:
        rows = ledger.query("SELECT status FROM trials")
    assert len(rows) == (5 if few else 2) and {row["status"] for row in rows} == {"done"}
    if few:
        the_readmes_python_runs(tmp_path, birds)


def the_readmes_python_runs(folder: Path, birds: Path) -> None:
    """Its block, on the sweep that has just run there: all of it is known."""
    (code,) = blocks(ROOT / "README.md", "python")
    for shown, here in (
        ("search_spaces/ddml.yaml", "my.yaml"),
        ("best_ddml", "tune"),
        ("/data/birds", str(birds)),
    ):
        assert shown in code
        code = code.replace(shown, here)
    given = "import numpy as np\nimages = np.zeros((2, 40, 32, 3), np.uint8)\n"
    asked = "\nprint(len(results.frame), tuple(model.embed(images).shape))\n"
    done = subprocess.run(
        [sys.executable, "-c", given + code + asked],
        cwd=folder,
        text=True,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ABLATE_CACHE": str(folder / "cache")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "6 (2, 512)", done.stdout


GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}}


def spec(birds: Path, batch: dict[str, Any], **studies: Any) -> dict[str, Any]:
    trial = {"data": {"name": "folder", "root": str(birds)}, "training": batch}
    return {"name": "batches", "trial": trial, "studies": studies}


@pytest.fixture(scope="module")
def forty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """14 train, 6 are for validation, 20 for the test."""
    return trees.class_folders(tmp_path_factory.mktemp("data") / "forty", 40, 3, (40, 32))


LATER = {"design": "grid", "around": {"best_of": "tune"}, "grid": {"embedding.dim": [8]}}
RATE = {"optimizer.lr": {"low": 1e-4, "high": 1e-2}}
SIZE, EACH = "training.batch_size", "training.per_class"


def tune(space: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"design": "search", "trials": 4, "space": space, **more}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "fold": (
        {"rates": {**GRID, "folds": 2, "trial": {SIZE: 44}}},
        "studies.rates.trial.training.batch_size: batches of 44 images",
    ),
    "grid": (
        {"sizes": {"design": "grid", "grid": {SIZE: [56, 60]}}},
        "studies.sizes.grid.training.batch_size: batches of 60 images",
    ),
    "compare": (
        {"rows": {"design": "compare", "variants": {"a": {}, "b": {"trial": {EACH: 2}}}}},
        ": batches of 32 images, 2 of each class, need 16 ",
    ),
    "around": (
        {"tune": tune(RATE), "later": {**LATER, "trial": {SIZE: 60}}},
        "studies.later.trial.training.batch_size: batches of 60 images",
    ),
    "choice": (
        {"tune": tune({SIZE: {"choice": [16, 32, 64]}})},
        "studies.tune.space.training.batch_size: the search may draw 64",
    ),
    "range": (
        {"tune": tune({SIZE: {"low": 8, "high": 64, "step": 8, "int": True}})},
        "studies.tune.space.training.batch_size: the search may draw 64",
    ),
    "per_class": (
        {"tune": tune({EACH: {"choice": [1, 2, 4]}})},
        "studies.tune.space.training.per_class: the search may draw 2",
    ),
}
# What fits with some of what else is drawn is the trial's to tell.
PLANNED = {
    "corner": {"tune": tune({SIZE: {"choice": [16, 32, 64]}, EACH: {"choice": [1, 2, 4]}})},
    "taken": {"tune": tune({SIZE: {"choice": [16, 32]}}), "later": {**LATER, "trial": {EACH: 2}}},
    "replaced": {"tune": tune({SIZE: {"choice": [16, 32]}}, trial={SIZE: 256})},
    "random": {"rows": {**GRID, "trial": {EACH: 1, SIZE: 999}}},
}


@pytest.mark.parametrize("case", [*REFUSED, *PLANNED])
def test_each_place_that_can_be_known_is_told(
    case: str, forty: Path, tmp_path: Path, capsys: Captured
) -> None:
    """And what only results decide is not guessed."""
    studies, place = REFUSED.get(case) or (PLANNED[case], "")
    given = spec(forty, {"batch_size": 32, "per_class": 4}, **studies)
    code, out, err = planned(given, tmp_path, capsys)
    if case in PLANNED:
        assert code == 0, err
    else:
        assert code == 2 and place in err and not out


def test_a_loss_of_pairs_needs_two_images_of_each_class(
    forty: Path, tmp_path: Path, capsys: Captured
) -> None:
    rates = {**GRID, "trial": {"loss": {"name": "contrastive"}}}
    code, _, err = planned(spec(forty, {"per_class": 1}, rates=rates), tmp_path, capsys)
    assert code == 2 and "training.per_class must be at least 2 with loss contrastive, not 1" in err
