"""Sampler classes of Optuna and of other packages, replayed from their seed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import optuna
import pytest

from ablate.designs.search import Search
from ablate.search.sampling import ObservedTrial, draw_seed, propose
from tests.ablate import specs
from tests.ablate.driven import run, stopped_often, table
from tests.ablate.search.searches import NUMBERS, driven, study

CLASSES = ["CmaEsSampler", "QMCSampler", "optuna.samplers:RandomSampler"]


class Unseeded(optuna.samplers.RandomSampler):
    def __init__(self) -> None:
        super().__init__()


def made(name: str, **more: Any) -> Search:
    sampler = {"name": "optuna", "class": name, "options": more.pop("options", {})}
    return study(NUMBERS, sampler=sampler, round=3, **more)


def value(params: dict[str, Any]) -> float:
    return -(params["x"] ** 2) - params["y"] ** 2 - math.log10(params["z"]) ** 2


@pytest.mark.parametrize("name", CLASSES)
def test_proposals_follow_from_the_results(name: str) -> None:
    search = made(name, options={"scramble": True} if name == "QMCSampler" else {})
    history = driven(search, "key", 12, value)
    assert len({str(trial.params) for trial in history}) == 12
    assert propose(search, "key", history) == propose(search, "key", list(history))
    assert propose(search, "key", history) != propose(search, "other", history)
    assert search.notes() == []


def test_an_own_state_is_replayed_as_one_optuna_study_has_it() -> None:
    """CMA-ES keeps its state in its study: a search of one trial at a time equals Optuna's."""
    search = made("CmaEsSampler", options={"n_startup_trials": 2})
    ours = [
        trial.params for trial in driven(search.model_copy(update={"round": 1}), "key", 10, value)
    ]
    theirs = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.CmaEsSampler(n_startup_trials=2, seed=draw_seed("key", 0)),
    )
    for params in ours:
        trial = theirs.ask()
        for name, axis in search.space.items():
            spread: Any = axis.to_optuna_distribution()
            assert (
                trial.suggest_float(name, spread.low, spread.high, log=spread.log) == params[name]
            )
        theirs.tell(trial, value(params))


@pytest.mark.parametrize("name", ["GridSampler", "BruteForceSampler"])
def test_an_exhausted_grid_repeats_its_values(name: str) -> None:
    options = {"search_space": {"x": [1, 2, 3]}} if name == "GridSampler" else {}
    sampler = {"name": "optuna", "class": name, "options": options}
    search = study({"x": {"low": 1, "high": 3, "int": True}}, sampler=sampler)
    drawn = [trial.params["x"] for trial in driven(search, "key", 6, lambda params: 1.0)]
    assert sorted(drawn[:3]) == [1, 2, 3] and set(drawn[3:]) <= {1, 2, 3}


def test_failures_are_told() -> None:
    search = made("NSGAIIISampler", options={"population_size": 4})
    history = [
        ObservedTrial(t.params, None if i == 2 else t.value, concurrent=t.concurrent)
        for i, t in enumerate(driven(search, "k", 9, value))
    ]
    assert set(propose(search, "k", history)) == set(NUMBERS)


def test_a_search_repeats_after_interruptions(tmp_path: Path) -> None:
    axis = {"low": 0, "high": 3}
    tune = {
        "design": "search",
        "trials": 8,
        "round": 2,
        "trial": {"method": {"name": "ddml"}},
        "sampler": {"name": "optuna", "class": "CmaEsSampler"},
        "space": {"method.alpha": axis, "method.beta": axis},
    }
    plan = specs.plan({"name": "any", "trial": {"training.epochs": 2}, "studies": {"tune": tune}})
    undisturbed = run(plan, tmp_path / "a")
    stopped, trained = stopped_often(plan, tmp_path / "b", seed=2)
    assert table(stopped) == table(undisturbed) and trained == 8


def test_a_class_without_a_seed_is_said_to_be_inexact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optuna.samplers, "Unseeded", Unseeded, raising=False)
    (note,) = made("Unseeded").notes()
    assert "cannot be resumed exactly" in note


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("NoSampler", {}, "cannot be imported"),
        ("not_here:Sampler", {}, "'not_here' is no installed package"),
        ("optuna.trial:Trial", {}, "is no Optuna sampler"),
        ("TPESampler", {"gamme": 1}, "refuses these options"),
        ("BruteForceSampler", {}, "cannot sample this space"),
    ],
)
def test_classes_that_cannot_be_used(name: str, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(name, options=options)
    with pytest.raises(ValueError, match="optuna needs a class"):
        study(NUMBERS, sampler="optuna")
