"""What a plan says before any training: steps, small classes, seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.cli.main import main
from tests.trainables import core_trials

GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}}


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    return core_trials.draw(tmp_path / "images")


def plan(images: Path, training: dict[str, Any], *more: str, code: int = 0, **spec: Any) -> None:
    """Plan a grid on the folder by the command."""
    trial = core_trials.config(images, training=training).model_dump(mode="json")
    folder = images.parent
    path = folder / "spec.yaml"
    path.write_text(
        yaml.safe_dump({"name": "made", "trial": trial, "studies": {"rates": GRID}, **spec})
    )
    assert main(["run", str(path), "--plan", "--out", str(folder / "out"), *more]) == code


@pytest.mark.parametrize(
    ("training", "warning"),
    [
        ({"epochs": 16}, "rates: 96 steps in all (6 an epoch × 16 epochs)"),
        ({"epochs": 17}, None),
        (
            {"epochs": 40, "batch_size": 14, "per_class": 7},
            "training.per_class is 7, and 7 of 7 training classes have fewer images",
        ),
        (
            {"epochs": 200, "batch_size": 44, "per_class": 1},
            "training.batch_size is 44, but there are only 42",
        ),
    ],
)
def test_batches_and_steps_that_do_not_suit_the_images(
    images: Path, capsys: pytest.CaptureFixture[str], training: dict[str, Any], warning: str | None
) -> None:
    # 14 classes of 6 images: 4 are tested, 3 of the rest validate, 7 train: 42 images.
    plan(images, {"batch_size": 8, "per_class": 2} | training)
    lines = capsys.readouterr().out.splitlines()
    if training == {"epochs": 17}:
        training_line = "    32 px, 42 training images, steps: 6 an epoch, 102 in all; "
        classes = "classes: 7 train, 3 validate, 4 test"
        assert training_line + classes in lines
    topics = ("steps in all (", "training.per_class is", "training.batch_size is")
    warnings = [line for line in lines if "warning:" in line and any(t in line for t in topics)]
    assert len(warnings) == (warning is not None) and (warning or "") in "".join(warnings)


TABLE = {"tables": [{"kind": "compare", "study": "rows", "metrics": ["test/recall_at_1"]}]}
ROWS = {
    "rows": {
        "design": "compare",
        "evaluate": ["test"],
        "tuning": "as_published",
        "variants": {"plain": {}, "more": {"trial": {"optimizer.lr": 1e-4}}},
    }
}


def test_a_plan_says_which_differences_its_tables_can_tell(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = {"epochs": 30, "batch_size": 8, "per_class": 2}
    sizes = {}
    for seeds in (1, 5, 10):
        plan(images, training, "--seeds", str(seeds), studies=ROWS, report=TABLE)
        lines = capsys.readouterr().out.splitlines()
        (sizes[seeds],) = [line.strip() for line in lines if " study's table " in line]
    assert sizes[1].startswith("with one seed the study's table cannot judge 1 comparison")
    assert sizes[5].endswith("2.4 standard deviations of a run (1 comparison)")
    assert sizes[10].endswith("1.4 standard deviations of a run (1 comparison)")
