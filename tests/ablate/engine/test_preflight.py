"""Data is read and divided before the first trial starts: one message, and nothing was done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import ablate.engine.driver
from ablate.cli.main import main
from ablate.engine import preflight
from ablate.engine.driver import run_plan
from ablate.engine.preflight import check_data
from ablate.engine.resources import Request
from ablate.engine.settings import Settings
from ablate.ledger.facts import Facts
from ablate.ledger.ledger import Ledger
from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides, Plan
from ablate.spec.read import read_spec
from ablate.sweep.progression import Progression
from tests.ablate import specs, synthetic
from tests.ablate.driven import dispatch, drain
from tests.trainables import core_trials
from trainables.data.dataset import fingerprint
from trainables.words.errors import ConfigError

GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}}
TUNE = {
    "design": "search",
    "trials": 4,
    "round": 2,
    "startup": 2,
    "space": {"optimizer.lr": {"low": 1e-4, "high": 1e-2}},
}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return core_trials.draw(tmp_path / "images")


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Images of which one is damaged."""
    root = core_trials.draw(tmp_path / "bad")
    image = root / "class03" / "2.png"
    image.write_bytes(image.read_bytes()[:80])
    return root


def spec(images: Path, **studies: dict[str, Any]) -> dict[str, Any]:
    trial = core_trials.config(images, training={"epochs": 1}).model_dump(mode="json")
    return {"name": "real", "trial": trial, "studies": studies}


def check(images: Path, folder: Path, **studies: dict[str, Any]) -> None:
    given = read_spec(spec(images, **studies))
    plan = build_checked_plan(given, Overrides(), fingerprint, folder / "cache")
    with Ledger(folder / "ledger.sqlite") as ledger:
        progression = Progression(plan, Facts(ledger, None, retry_failed=False), record=False)
        progression.list_new_cells()
        check_data(plan, progression, folder / "cache")


def test_searched_batches_are_checked_once_and_only_if_they_are_searched(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"design": "grid", "grid": {"training.batch_size": [9, 18]}}
    plan = build_checked_plan(
        read_spec(spec(images, tune=TUNE, sizes=grid)), Overrides(), fingerprint, tmp_path
    )
    resolved: list[Any] = []
    monkeypatch.setattr(Plan, "resolve_config", lambda *args: resolved.append(args))
    preflight._check_searched_batches(plan, "tune", None, 2)
    assert resolved == []
    monkeypatch.undo()
    checked: list[Any] = []
    monkeypatch.setattr(preflight, "_check_searched_batches", lambda _, *key: checked.append(key))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        progression = Progression(plan, Facts(ledger, None, retry_failed=False), record=False)
        progression.list_new_cells()
        loader = preflight.SplitLoader.without_pixels(tmp_path)
        preflight.check_classes(plan, progression, loader)
    assert [study for study, *_ in checked] == ["tune", "sizes"]


def test_a_damaged_image_ends_a_run_before_its_first_trial(
    bad: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    path, out = tmp_path / "spec.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(spec(bad, rates=GRID)))
    assert main(["run", str(path), "--out", str(out), "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(bad / "class03" / "2.png") in line and "Replace or remove the file" in line
    assert not (out / "mlflow.db").exists() and not (out / "trials").exists()
    with Ledger(out / "ledger.sqlite") as ledger:
        assert ledger.query("SELECT * FROM trials") == []


FOLDS = {"data.split": {"folds": 40, "fold": 3}}


@pytest.mark.parametrize(
    ("study", "place"),
    [
        ({**GRID, "folds": 40}, "studies.rates.folds"),
        (
            {"design": "compare", "variants": {"few": {}, "many": {"trial": FOLDS}}},
            "studies.rates.variants.many.trial.data.split.folds",
        ),
    ],
    ids=str,
)
def test_more_folds_than_classes_are_told_with_their_place(
    study: dict[str, Any], place: str, images: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(images, tmp_path, fine={**GRID, "folds": 5}, rates=study)
    assert str(caught.value).startswith(
        f"spec: {place}: 10 training classes are too few for 40 folds"
    )


@pytest.mark.parametrize(
    "later",
    [
        {
            "design": "compare",
            "around": {"best_of": "tune"},
            "cross": {"data": {"good": {}, "bad": {"trial": {"data.root": "BAD"}}}},
        },
        {"design": "promote", "of": "tune", "best": 1, "trial": {"data.root": "BAD"}},
        {**TUNE, "trial": {"data.root": "BAD"}},
    ],
    ids=lambda study: study["design"],
)
def test_data_of_studies_that_follow_from_results_is_read_now(
    later: dict[str, Any], images: Path, bad: Path, tmp_path: Path
) -> None:
    study = yaml.safe_load(yaml.safe_dump(later).replace("BAD", str(bad)))
    with pytest.raises(ConfigError, match=rf"data\.root: {bad}/class03/2.png: the image "):
        check(images, tmp_path, tune=TUNE, later=study)


def test_data_that_results_decide_is_not_guessed(images: Path, bad: Path, tmp_path: Path) -> None:
    """The bad root stands in the file, and the search's best cell replaces it."""
    roots = {
        **TUNE,
        "trial": {"data.root": str(bad)},
        "space": {"data.root": {"choice": [str(images), f"{images}/../images"]}},
    }
    around = {
        "design": "grid",
        "around": {"best_of": "roots", "take": ["data.root"]},
        "trial": {"data.root": str(bad)},
        "grid": {"embedding.dim": [8]},
    }
    promoted = {"design": "promote", "of": "roots", "best": 1, "trial": {"embedding.dim": 8}}
    check(images, tmp_path, roots=roots, around=around, promoted=promoted)


def test_what_is_known_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the data was read")

    monkeypatch.setattr(ablate.engine.driver, "check_data", refuse)
    plan = specs.plan({"name": "small", "studies": {"rates": GRID}})
    settings = Settings(
        tmp_path, tmp_path, Request(1, 0, "cpu"), evaluator=synthetic.EVALUATOR, reads_data=True
    )
    with pytest.raises(AssertionError, match="was read"):
        run_plan(plan, settings)
    drain(dispatch(plan, tmp_path))
    assert run_plan(plan, settings).is_finished
