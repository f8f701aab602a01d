"""The README's own experiment on folders of few classes, and batches that these cannot fill."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from ablate.cli.main import main
from ablate.ledger.ledger import Ledger
from tests.ablate.command import ROOT, ablate_run
from tests.documented import blocks


def folder(root: Path, classes: int) -> Path:
    """Three images of each class."""
    draw = np.random.default_rng(classes)
    for number in range(classes):
        (root / f"bird {number:02d}").mkdir(parents=True)
        base = draw.integers(0, 255, (1, 40, 3))
        for image in range(3):
            noisy = (base + draw.normal(0, 30, (32, 40, 3))).clip(0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(root / f"bird {number:02d}" / f"{image}.png")
    return root


@pytest.fixture(params=[6, 40])
def birds(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return folder(tmp_path / "birds", request.param)


def readme(birds: Path) -> dict[str, Any]:
    """my.yaml as the README has it, with the folder."""
    (text,) = re.findall(r"```yaml\n# my\.yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert "root: /data/birds" in text
    found: dict[str, Any] = yaml.safe_load(text.replace("/data/birds", str(birds)))
    return found


def planned(
    spec: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, str, str]:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    code = main(["run", str(path), "--plan", "--out", str(folder / "runs"), *more])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_readmes_experiment_can_be_planned(
    birds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = planned(readme(birds), tmp_path, capsys)
    assert code == 0 and not err
    few = len(list(birds.iterdir())) == 6
    assert (
        "tune, terms: epochs and settings are selected on the images of one class" in out
    ) == few


@pytest.mark.slow
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
        rows = ledger.rows("SELECT status FROM trials")
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


BATCH: dict[str, Any] = {"batch_size": 128, "per_class": 4}
GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}}


def spec(birds: Path, batch: dict[str, Any], **studies: Any) -> dict[str, Any]:
    trial = {"data": {"name": "folder", "root": str(birds)}, "training": batch}
    return {"name": "batches", "trial": trial, "studies": studies}


@pytest.fixture
def forty(tmp_path: Path) -> Path:
    """14 train, 6 are for validation, 20 for the test."""
    return folder(tmp_path / "forty", 40)


@pytest.mark.parametrize("command", [["--plan"], []])
def test_a_batch_of_more_classes_than_train_starts_nothing(
    command: list[str], forty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec(forty, BATCH, rates=GRID)))
    out = tmp_path / "runs"
    assert main(["run", str(path), "--out", str(out), *command]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "trial.training.batch_size: found 128, which at per_class 4" in line
    assert "takes 32 classes a batch; expected at most the 14 training classes" in line
    assert not out.exists()
    for setting in re.findall(r"--set (training\.\w+=\d+)", line):
        assert main(["run", str(path), "--out", str(out), "--plan", "--set", setting]) == 0
    assert len(re.findall(r"--set", line)) == 2


def around(path: str) -> dict[str, Any]:
    return {"design": "grid", "around": {"best_of": path}, "grid": {"embedding.dim": [8]}}


TUNE = {"design": "search", "trials": 4, "space": {"optimizer.lr": {"low": 1e-4, "high": 1e-2}}}
FITS = {"batch_size": 32, "per_class": 4}


@pytest.mark.parametrize(
    ("studies", "place"),
    [
        (
            {"rates": {**GRID, "folds": 2, "trial": {"training.batch_size": 44}}},
            "studies.rates.trial.training.batch_size: found 44",
        ),
        (
            {"sizes": {"design": "grid", "grid": {"training.batch_size": [56, 60]}}},
            "studies.sizes.grid.training.batch_size: found 60",
        ),
        (
            {
                "rows": {
                    "design": "compare",
                    "variants": {"a": {}, "b": {"trial": {"training.per_class": 2}}},
                }
            },
            ": found 32, which at per_class 2 takes 16 classes",
        ),
        (
            {"tune": TUNE, "later": {**around("tune"), "trial": {"training.batch_size": 60}}},
            "studies.later.trial.training.batch_size: found 60",
        ),
        (
            {"tune": {**TUNE, "space": {"training.batch_size": {"choice": [16, 32, 64]}}}},
            "studies.tune.space.training.batch_size: found 64, "
            "which at per_class 4 takes 16 classes",
        ),
        (
            {
                "tune": {
                    **TUNE,
                    "space": {
                        "training.batch_size": {"low": 8, "high": 64, "step": 8, "int": True}
                    },
                }
            },
            "studies.tune.space.training.batch_size: found 64",
        ),
        (
            {"tune": {**TUNE, "space": {"training.per_class": {"choice": [1, 2, 4]}}}},
            "studies.tune.space.training.per_class: found 32, "
            "which at per_class 2 takes 16 classes",
        ),
    ],
    ids=["fold", "grid", "compare", "around", "choice", "range", "per_class"],
)
def test_each_place_that_can_be_known_is_told(
    studies: dict[str, Any],
    place: str,
    forty: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = planned(spec(forty, FITS, **studies), tmp_path, capsys)
    assert code == 2 and place in err and not out


@pytest.mark.parametrize(
    "studies",
    [
        # What fits with some of what else is drawn is the trial's to tell.
        {
            "tune": {
                **TUNE,
                "space": {
                    "training.batch_size": {"choice": [16, 32, 64]},
                    "training.per_class": {"choice": [1, 2, 4]},
                },
            }
        },
        {
            "tune": {**TUNE, "space": {"training.batch_size": {"choice": [16, 32]}}},
            "later": {**around("tune"), "trial": {"training.per_class": 2}},
        },
        {
            "tune": {
                **TUNE,
                "trial": {"training.batch_size": 256},
                "space": {"training.batch_size": {"choice": [16, 32]}},
            }
        },
        {"rows": {**GRID, "trial": {"training.per_class": 1, "training.batch_size": 999}}},
    ],
    ids=["corner", "taken", "replaced", "random"],
)
def test_what_only_results_decide_is_not_guessed(
    studies: dict[str, Any], forty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = planned(spec(forty, FITS, **studies), tmp_path, capsys)
    assert code == 0, err


def test_a_loss_of_pairs_needs_two_images_of_each_class(
    forty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = spec(
        forty, {"per_class": 1}, rates={**GRID, "trial": {"loss": {"name": "contrastive"}}}
    )
    code, _, err = planned(given, tmp_path, capsys)
    assert code == 2 and "training.per_class of at least 2 with loss contrastive, not 1" in err
