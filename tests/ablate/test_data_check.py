"""Data is read and divided before the first trial starts: one message, and nothing was done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import ablate.engine
from ablate.data_check import check_data
from ablate.engine import Settings, run_plan
from ablate.facts import Facts
from ablate.ledger import Ledger
from ablate.plan import Overrides, Plan
from ablate.progression import Progression
from ablate.resources import Request
from ablate.spec import read_spec
from tests.ablate import specs, synthetic
from tests.ablate.test_sweep import dispatch, drain
from tests.trainables import core_trials
from trainables.data import fingerprint
from trainables.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}}
TUNE = {"design": "search", "trials": 4, "round": 2, "startup": 2, "space": {
    "optimizer.lr": {"low": 1e-4, "high": 1e-2}}}  # fmt: skip


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return core_trials.draw(tmp_path / "images")


def spec(images: Path, **studies: dict[str, Any]) -> dict[str, Any]:
    trial = core_trials.config(images, training={"epochs": 1}).model_dump(mode="json")
    return {"name": "real", "trial": trial, "studies": studies}


def check(images: Path, folder: Path, **studies: dict[str, Any]) -> None:
    plan = Plan(read_spec(spec(images, **studies)), Overrides(), fingerprint, folder / "cache")
    with Ledger(folder / "ledger.sqlite") as ledger:
        progression = Progression(plan, Facts(ledger, None, retry_failed=False), record=False)
        progression.advance()
        check_data(plan, progression, folder / "cache")


def damage(folder: Path) -> Path:
    broken = folder / "class03" / "2.png"
    broken.write_bytes(broken.read_bytes()[:80])
    return broken


def test_a_damaged_image_ends_a_run_before_its_first_trial(images: Path, tmp_path: Path) -> None:
    broken = damage(images)
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec(images, rates=GRID)))
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-m", "ablate.run", str(path), "--out", str(out)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "ABLATE_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and str(broken) in done.stderr
    assert "expected a whole image file. Replace or remove the file" in done.stderr
    assert not (out / "mlflow.db").exists() and not (out / "trials").exists()
    with Ledger(out / "ledger.sqlite") as ledger:
        assert ledger.rows("SELECT * FROM trials") == []


def test_more_folds_than_classes_are_told_with_their_place(images: Path, tmp_path: Path) -> None:
    check(images, tmp_path, rates={**GRID, "folds": 5})
    with pytest.raises(ConfigError) as caught:
        check(images, tmp_path, fine=GRID, rates={**GRID, "folds": 40})
    assert str(caught.value).startswith("spec: studies.rates.folds: found 40 folds of 10 training")
    with pytest.raises(ConfigError) as caught:
        check(images, tmp_path, rates={**GRID, "trial": {"data.split": {"folds": 40, "fold": 3}}})
    assert str(caught.value).startswith("spec: studies.rates.trial.data.split.folds: found 40")


def test_a_split_without_two_images_of_a_class_is_told(images: Path, tmp_path: Path) -> None:
    for folder in images.iterdir():
        for image in sorted(folder.iterdir())[1:]:
            image.unlink()
    with pytest.raises(ConfigError, match=r"studies\.rates, data, split val: found \d classes of"):
        check(images, tmp_path, rates=GRID)


@pytest.mark.parametrize(
    "later",
    [
        {"design": "compare", "around": {"best_of": "tune"}, "cross": {
            "data": {"good": {}, "bad": {"trial": {"data.root": "BAD"}}}}},
        {"design": "promote", "of": "tune", "best": 1, "trial": {"data.root": "BAD"}},
        {"design": "grid", "around": {"best_of": "tune"}, "grid": {"data.root": [None, "BAD"]}},
        {"design": "grid", "around": {"best_of": "tune"}, "trial": {"data.root": "BAD"},
         "grid": {"embedding.dim": [8, 16]}},
        {**TUNE, "trial": {"data.root": "BAD"}},
    ],
    ids=lambda study: study["design"],
)  # fmt: skip
def test_data_of_studies_that_follow_from_results_is_read_now(
    later: dict[str, Any], images: Path, tmp_path: Path
) -> None:
    bad = core_trials.draw(tmp_path / "bad")
    broken = damage(bad)
    text = yaml.safe_dump(later).replace("BAD", str(bad)).replace("null", str(images))
    with pytest.raises(ConfigError) as caught:
        check(images, tmp_path, tune=TUNE, later=yaml.safe_load(text))
    assert str(broken) in str(caught.value)


def test_what_is_known_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the data was read")

    monkeypatch.setattr(ablate.engine, "check_data", never)
    plan = specs.plan({"name": "small", "studies": {"rates": GRID}})
    settings = Settings(tmp_path, tmp_path, Request(1, 0, "cpu"), evaluator=synthetic.EVALUATOR,
                        reads_data=True)  # fmt: skip
    with pytest.raises(AssertionError, match="was read"):
        run_plan(plan, settings)
    drain(dispatch(plan, tmp_path))
    assert run_plan(plan, settings).finished
