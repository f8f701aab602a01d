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


def warned(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("warning:")]


def test_steps_and_size_of_images(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # 14 classes of 6 images: 4 are tested, 3 of the rest validate, 7 train: 42 images.
    plan(images, {"epochs": 17, "batch_size": 8, "per_class": 2})
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "steps an epoch" in line]
    assert line.strip() == "32 px, 42 training images, 6 steps an epoch, 102 in all"
    assert not [line for line in warned(lines) if "steps" in line or "per_class" in line]


@pytest.mark.parametrize(
    ("training", "warning"),
    [
        ({"epochs": 16}, "rates: 96 steps in all (6 an epoch × 16 epochs)"),
        ({"epochs": 17}, None),
        (
            {"epochs": 40, "batch_size": 14, "per_class": 7},
            "training.per_class is 7, and 7 of 7 training classes have fewer images",
        ),
        ({"epochs": 40, "batch_size": 12, "per_class": 6}, None),
        (
            {"epochs": 200, "batch_size": 44, "per_class": 1},
            "training.batch_size is 44 and 42 images train",
        ),
        ({"epochs": 200, "batch_size": 42, "per_class": 1}, None),
    ],
)
def test_batches_and_steps_that_do_not_suit_the_images(
    images: Path, capsys: pytest.CaptureFixture[str], training: dict[str, Any], warning: str | None
) -> None:
    plan(images, {"batch_size": 8, "per_class": 2} | training)
    words = ("steps in all", "training.per_class is", "training.batch_size is")
    found = [
        line
        for line in warned(capsys.readouterr().out.splitlines())
        if any(each in line for each in words)
    ]
    assert len(found) == (warning is not None) and (warning is None or warning in found[0])


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
    given = {"epochs": 30, "batch_size": 8, "per_class": 2}
    sizes = {}
    for seeds in (1, 5, 10):
        plan(images, given, "--seeds", str(seeds), studies=ROWS, report=TABLE)
        lines = capsys.readouterr().out.splitlines()
        (sizes[seeds],) = [line.strip() for line in lines if " its table " in line]
    assert sizes[1].startswith("with one seed its table can tell nothing of 1 comparison")
    assert sizes[5].endswith("2.4 standard deviations of a run (1 comparison)")
    assert sizes[10].endswith("1.4 standard deviations of a run (1 comparison)")
