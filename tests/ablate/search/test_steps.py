"""Axes with a step: exact values from every sampler, and drifted values of older ledgers."""

from __future__ import annotations

import itertools
import random
import warnings
from pathlib import Path
from typing import Any

import pytest

from ablate.search.sampling import SAMPLERS, ObservedTrial, propose
from ablate.search.space import Axis
from reports.stats.importance import Levels, compute_importances
from reports.tables.warnings import find_edge
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, run, table
from tests.ablate.search.searches import driven, study

# each axis as YAML writes it, and its levels as YAML would write them
AXES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "a": ({"low": 0.1, "high": 0.3, "step": 0.1}, [0.1, 0.2, 0.3]),
    "b": ({"low": -0.3, "high": 0, "step": 0.1}, [-0.3, -0.2, -0.1, 0.0]),
    "c": ({"low": 0.1, "high": 0.75, "step": 0.2}, [0.1, 0.3, 0.5, 0.7]),  # no multiple
    "d": ({"low": 1e-5, "high": 7e-5, "step": 2e-5}, [1e-5, 3e-5, 5e-5, 7e-5]),
    "e": ({"low": 1, "high": 2, "step": 0.3}, [1.0, 1.3, 1.6, 1.9]),
    "n": ({"low": 3, "high": 20, "step": 4, "int": True}, [3, 7, 11, 15, 19]),
}
GUESSES: dict[str, dict[str, Any]] = {
    "a": {"guess": 0.3, "sd": 0.1},
    "b": {"guess": 0, "sd": 0.2},
    "c": {"guess": 0.5, "sd": 0.3},
    "n": {"guess": 11, "sd": 5},
}
BRANCH: dict[str, Any] = {"k": {"choice": ["p", "q"]}}
OPTUNA = [
    {"name": "optuna", "class": "QMCSampler"},
    {"name": "optuna", "class": "NSGAIISampler", "options": {"population_size": 6}},
]
CASES = [
    pytest.param(name, prior, marks=pytest.mark.slow if name == "gp" else ())  # seconds each
    for name in SAMPLERS
    if name != "optuna"
    for prior in (False, True)
] + [(sampler, False) for sampler in OPTUNA]  # whose classes take no prior


def build_space(*, prior: bool, inactive: bool) -> dict[str, Any]:
    space = {path: dict(axis) for path, (axis, _) in AXES.items()}
    for path in GUESSES if prior else ():
        space[path]["prior"] = GUESSES[path]
    for path in ("a", "c", "n") if inactive else ():
        space[path]["when"] = {"k": "q"}
    return space | (BRANCH if inactive else {})


def drift(path: str, value: Any) -> Any:
    """The value as versions before computed it: low + i · step in floats."""
    axis, levels = AXES.get(path, ({}, []))
    return axis["low"] + levels.index(value) * axis["step"] if levels else value


def reward(params: dict[str, Any]) -> float:
    return -sum(abs(params.get(path, 0) - AXES[path][1][1]) for path in AXES)


@pytest.mark.parametrize("inactive", [False, True], ids=["", "inactive"])
@pytest.mark.parametrize(("sampler", "prior"), CASES)
def test_every_proposal_is_a_level(sampler: Any, prior: bool, inactive: bool) -> None:
    more: dict[str, Any] = {"population": 6} if sampler in ("nsga2", "cmaes") else {"startup": 6}
    if sampler == "gp":
        more = {"startup": 20}  # each of its later proposals takes a while
    made = study(build_space(prior=prior, inactive=inactive), sampler=sampler, round=3, **more)
    history = driven(made, "key", 24, reward)
    for path, (_, levels) in AXES.items():
        values = [trial.params[path] for trial in history if path in trial.params]
        assert {*map(repr, values)} <= {*map(repr, levels)}, path
        assert all(made.space[path].is_possible(value) for value in values)
        assert len({*values}) > 1
    # proposals that an older version recorded lead to the next one as the exact ones do
    drifted = [
        ObservedTrial(
            {path: drift(path, value) for path, value in trial.params.items()},
            trial.value,
            concurrent=trial.concurrent,
        )
        for trial in history
    ]
    assert [trial.params for trial in drifted] != [trial.params for trial in history]
    assert propose(made, "key", drifted) == propose(made, "key", history)


def test_a_replayed_sampler_knows_its_own_proposals() -> None:
    """Optuna gives 0.30000000000000004, the proposal is 0.3, and its result is told all the same:
    the search is that of whole steps, which do not drift."""

    def list_steps(unit: float) -> list[list[int]]:
        axis = {"low": 0, "high": 11 * unit, "step": unit}
        made = study({"x": axis, "y": axis}, sampler=OPTUNA[1], round=3)
        history = driven(made, "key", 24, lambda params: -sum(params.values()) / unit)
        return [[round(value / unit) for value in trial.params.values()] for trial in history]

    assert list_steps(0.1) == list_steps(1)


@pytest.mark.parametrize("path", AXES)
def test_an_axis_has_its_levels_and_no_others(path: str) -> None:
    given, levels = AXES[path]
    axis = Axis.model_validate(given)
    assert [*map(repr, axis.list_samples())] == [*map(repr, levels)]
    assert axis.list_ends() == [levels[0], levels[-1]]
    for i, value in enumerate(levels):
        drifted = given["low"] + i * given["step"]
        assert axis.is_possible(value) and axis.is_possible(drifted)
        assert axis.to_optuna(drifted) == value == axis.value_at(axis.locate_value(drifted))
    between = [(a + b) / 2 for a, b in itertools.pairwise(levels)]
    outside = [levels[0] - given["step"], levels[-1] + given["step"], given["high"] + 1e-3]
    strange = [float("nan"), float("inf"), -float("inf"), 10**400, True, "0.1", None]
    for value in (*between, *outside, *strange):
        assert not axis.is_possible(value), value


def test_levels_are_as_written_whatever_the_numbers() -> None:
    draw = random.Random(0)
    for _ in range(300):
        places, low, step = draw.randint(0, 6), draw.randint(-50, 50), draw.randint(1, 40)
        count, rest = draw.randint(1, 30), draw.randint(0, step - 1)
        low_text, step_text, high_text = (
            f"{number}e-{places}" for number in (low, step, low + (count - 1) * step + rest)
        )
        levels = Levels(float(low_text), float(high_text), float(step_text))
        values = [levels.compute_value(i) for i in range(levels.count)]
        assert values == [float(f"{low + i * step}e-{places}") for i in range(count)]
        assert [levels.to_level(levels.low + i * levels.step) for i in range(count)] == values


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [(0.1, 0.9, 0.8 / 3), (0, 1, 1 / 3), (0.1, 0.35, 0.1), (0.1, 0.3, 0.5), (1e-3, 1, 1 / 7)],
)
def test_a_step_that_does_not_divide_its_axis_is_no_warning(
    low: float, high: float, step: float
) -> None:
    axis = Axis(low=low, high=high, step=step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        distribution: Any = axis.to_optuna_distribution()
    values = axis.list_samples()
    assert distribution.high == pytest.approx(values[-1]) and values[-1] <= high < values[-1] + step


def test_a_box_around_a_drifted_value_has_the_same_levels() -> None:
    axis = Axis.model_validate({"low": 0.1, "high": 1.5, "step": 0.1, "box": 2})
    near = axis.narrow(0.1 + 5 * 0.1, [0.1 + 2 * 0.1])
    assert near.list_samples() == [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2]


def test_importances_and_edges_read_drifted_values() -> None:
    space = {path: AXES[path][0] for path in ("a", "b", "c")}
    draw = random.Random(1)
    exact = [{path: draw.choice(AXES[path][1]) for path in space} for _ in range(60)]
    drifted = [{path: drift(path, value) for path, value in each.items()} for each in exact]
    values = [each["a"] for each in exact]
    for evaluator in ("ped_anova", "fanova"):
        found = compute_importances(drifted, values, space, evaluator=evaluator)  # type: ignore[arg-type]
        assert found is not None and next(iter(found.shares)) == "a"
        wanted = compute_importances(exact, values, space, evaluator=evaluator)  # type: ignore[arg-type]
        assert wanted is not None and found.shares == wanted.shares
    ten = {"low": 0.3, "high": 1.2, "step": 0.1}  # 10 values, of which floats count 9.999…
    assert find_edge(ten, [1.2, 1.1, 0.5]) == "high"
    assert find_edge(ten | {"high": 1.15}, [1.1, 1.1, 0.5]) is None


# ------------------------------------------------------------------- ledgers of older versions

STEPS = {"optimizer.lr": {"low": 1e-3, "high": 1e-2, "step": 1e-3}}
ALPHAS = {"method.alpha": {"low": 0, "high": 0.7, "step": 0.1}}


def write_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute levels in floats, and take them as they are."""
    monkeypatch.setattr(Levels, "compute_value", lambda self, i: self.low + i * self.step)
    monkeypatch.setattr(Levels, "to_level", lambda self, value: value)


def search(space: dict[str, Any], **more: Any) -> dict[str, Any]:
    settings = {"design": "search", "trials": 12, "round": 4, "sampler": "quasi_random", "seeds": 1}
    return {**settings, "space": space, **more}


def content(name: str, **more: Any) -> dict[str, Any]:
    """Two searches with steps, of which the second has a neutral cell, and a row at its best."""
    ddml = {"trial": {"method": {"name": "ddml"}}}
    tune = search(ALPHAS | STEPS, **ddml, neutral={"best_of": "plain"})
    rows = {"design": "compare", "variants": {"ddml": {**ddml, "around": {"best_of": "tune"}}}}
    plain = search(STEPS, trial={"method": {"name": "plain"}})
    studies = {"plain": plain, "tune": tune | more, "rows": rows}
    return {"name": name, "trial": {"training.epochs": 1}, "studies": studies}


def test_an_older_ledger_keeps_its_trials_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        write_as_before(patch)
        before = run(specs.plan(content("old")), tmp_path)
    drifted = {cell.coords["method.alpha"] for cell in before.progression.studies["tune"].cells}
    assert drifted & {3 * 0.1, 6 * 0.1, 7 * 0.1} and 7 * 0.1 > 0.7
    # nothing is trained or proposed again
    again = dispatch(specs.plan(content("old")), tmp_path)
    assert drain(again) == [] and table(again) == table(before)
    # a larger budget goes on with exact values
    more = run(specs.plan(content("old", trials=16)), tmp_path)
    cells = more.progression.studies["tune"].cells
    fresh = [cell.coords["method.alpha"] for cell in cells if 12 <= cell.idx < 16]
    assert len(fresh) == 4 and {*fresh} <= {i / 10 for i in range(8)}
    # another sweep learns from the old trials, whose drifted values are on its axes
    warm = specs.plan(content("new", sampler="tpe", warm_start="old", startup=4))
    learned = run(warm, tmp_path)
    n_old = len({row["cell"] for row in table(before) if row["study"] == "tune"})
    seen = learned.progression.proposers["tune"].list_history({})
    assert len(seen) >= n_old + 12


def test_a_neutral_cell_that_drifted_out_of_its_axis_keeps_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sampler did not see it, and a search that did would propose all its trials anew."""
    peak = {"optimizer.lr": {"low": 1e-4, "high": 7e-4, "step": 1e-4}}  # best at its upper end
    spec = content("old", space=ALPHAS | peak)
    spec["studies"]["plain"]["space"] = peak
    with monkeypatch.context() as patch:
        write_as_before(patch)
        before = run(specs.plan(spec), tmp_path)
    best = before.progression.ranking.rank_study("plain")[0]
    assert best.values["optimizer.lr"] == 1e-4 + 6 * 1e-4 > 7e-4
    again = dispatch(specs.plan(spec), tmp_path)
    assert drain(again) == [] and table(again) == table(before)
