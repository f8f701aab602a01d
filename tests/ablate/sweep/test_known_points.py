"""Searches around known values: points tried first, boxes around a study's best."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from ablate.plan.plan import Plan
from ablate.search.space import Axis
from ablate.sweep.job_queue import JobQueue
from tests.ablate import specs
from tests.ablate.driven import run, stopped_often, table
from trainables.words.errors import ConfigError

RATE = {"optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True}}
ALPHA = {"method.alpha": {"low": 0, "high": 3}}
WHEN = {
    "optimizer.lr": {"choice": [1e-4, 1e-3]},
    "method.alpha": {"low": 0, "high": 3, "when": {"optimizer.lr": 1e-3}},
}
SEARCH = {"design": "search", "trials": 6, "round": 3, "startup": 3, "seeds": 2}
BASE = {**SEARCH, "trial": {"method": {"name": "plain"}}, "space": RATE}
WEIGHTS = {**SEARCH, "trial": {"method": {"name": "ddml"}}}


def plan(base: dict[str, Any] = BASE, **search: Any) -> Plan:
    studies = {"base": base, "tune": {**WEIGHTS, **search}}
    return specs.plan({"name": "known", "trial": {"training.epochs": 2}, "studies": studies})


def params(made: JobQueue, study: str = "tune") -> list[dict[str, Any]]:
    return [cell.coords for cell in made.progression.studies[study].cells if cell.seed == 0]


# ------------------------------------------------------------------ points


def test_points_are_tried_first_with_the_centre_s_values_on_other_axes(tmp_path: Path) -> None:
    points = [{"method.alpha": 1.0}, {"method.alpha": 0.1, "optimizer.lr": 2e-3}]
    made = run(plan(space=RATE | ALPHA, points=points, around={"best_of": "base"}), tmp_path)
    best = made.progression.ranking.rank_study("base")[0]
    rate = best.values["optimizer.lr"]
    first, second, *others = params(made)
    assert first == {"optimizer.lr": rate, "method.alpha": 1.0}
    assert second == {"optimizer.lr": 2e-3, "method.alpha": 0.1}
    assert len(others) == 4  # points count in the budget


def test_a_point_whose_centre_is_outside_of_the_space_is_completed_by_a_draw(
    tmp_path: Path,
) -> None:
    space = {"optimizer.lr": {"low": 0.1, "high": 0.2}} | ALPHA  # the default is 1e-4
    first = params(run(plan(space=space, points=[{"method.alpha": 1}]), tmp_path))[0]
    assert first["method.alpha"] == 1 and 0.1 <= first["optimizer.lr"] <= 0.2


@pytest.mark.parametrize("sampler", ["tpe", "quasi_random", "cmaes"])
def test_points_and_boxes_repeat_after_interruptions(tmp_path: Path, sampler: str) -> None:
    made = plan(
        space=ALPHA,
        points=[{"method.alpha": 1.0}],
        around={"best_of": "base", "box": 3},
        sampler=sampler,
        neutral={"best_of": "base"},
    )
    undisturbed = run(made, tmp_path / "a")
    stopped, trained = stopped_often(made, tmp_path / "b", seed=4)
    assert table(stopped) == table(undisturbed) and trained == undisturbed.trained


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"points": [{"method.beta": 1}]}, "points.0: the name 'method.beta' is unknown"),
        ({"points": [{"method.alpha": 4}]}, "method.alpha: 4 is outside"),
        ({"points": [{"method.alpha": 1}] * 7}, "7 points are more than the 6 trials"),
        ({"points": [{}], "trial": {"method": {"name": "ddml", "alpha": 4}}}, "alpha is 4.0, out"),
        ({"space": WHEN, "points": [{"method.alpha": 1}]}, "0: method.alpha is set where its"),
        (
            {"space": WHEN, "points": [{"method.alpha": 1}], "around": {"best_of": "base"}},
            None,  # the best may have the value of which alpha depends
        ),
    ],
)
def test_points_outside_of_the_search_are_refused(
    search: dict[str, Any], message: str | None
) -> None:
    refused = pytest.raises(ConfigError, match=message) if message else contextlib.nullcontext()
    with refused:
        plan(**{"space": ALPHA, **search})


# ------------------------------------------------------------------ boxes


def test_a_box_searches_the_rates_near_the_best_of_the_baseline(tmp_path: Path) -> None:
    made = run(plan(space=ALPHA, around={"best_of": "base", "box": 1.5}), tmp_path)
    best = made.progression.ranking.rank_study("base")[0]
    rate = best.values["optimizer.lr"]
    rates = [point["optimizer.lr"] for point in params(made)]
    assert len(set(rates)) == 6
    assert all(max(rate / 1.5, 1e-4) <= value <= min(rate * 1.5, 1e-2) for value in rates)
    assert all("method.alpha" in point for point in params(made))
    # a study around this one takes the rates from here
    assert "optimizer.lr" in made.progression.studies["tune"].cells[0].coords


def test_a_box_alone_is_a_space_and_reaches_through_promotions(tmp_path: Path) -> None:
    studies = {
        "base": BASE,
        "finalists": {"design": "promote", "of": "base", "best": 2, "seeds": [7]},
        "again": {**SEARCH, "around": {"best_of": "finalists", "box": 2}},
    }
    content = {"name": "known", "trial": {"training.epochs": 2}, "studies": studies}
    made = run(specs.plan(content), tmp_path)
    assert [sorted(point) for point in params(made, "again")] == [["optimizer.lr"]] * 6


@pytest.mark.parametrize("sampler", ["tpe", {"name": "optuna", "class": "CmaEsSampler"}])
def test_points_outside_of_a_box_are_tried(tmp_path: Path, sampler: Any) -> None:
    space = {"method.alpha": {"low": 0.01, "high": 3, "box": 1.5}}
    trial = {"method": {"name": "ddml", "alpha": 0.1}}
    points = [{"method.alpha": 3}, {"method.alpha": 0.01}]
    made = run(plan(space=space, trial=trial, points=points, sampler=sampler), tmp_path)
    assert params(made)[:2] == points and len(params(made)) == 6


def test_a_box_takes_the_axes_of_a_section() -> None:
    search = {**BASE, "trial": {"method.name": "ddml"}, "space": RATE | ALPHA}
    made = plan(search, around={"best_of": "base", "take": ["method"], "box": 2})
    assert made.spec.studies["tune"].paths == ("method.alpha",)


def test_a_box_without_a_search_behind_it_is_refused() -> None:
    grid = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-2]}}
    with pytest.raises(ConfigError, match="base builds on no search with a numeric axis"):
        plan(grid, space=ALPHA, around={"best_of": "base", "box": 2})
    with pytest.raises(ConfigError, match="only `around` of a search has a `box`"):
        plan(grid | {"around": {"best_of": "tune", "box": 2}}, space=ALPHA)
    with pytest.raises(ConfigError, match=r"studies\.tune\.population: the sampler tpe takes no"):
        plan(around={"best_of": "base", "box": 2}, population=5)
    with pytest.raises(ConfigError, match=r"around\.box: the value must be a finite number"):
        plan(around={"best_of": "base", "box": float("inf")})


@pytest.mark.parametrize(
    ("axis", "value", "low", "high", "log"),
    [
        ({"low": 0.0, "high": 1.0}, 0.3, 0.1, 0.9, True),
        ({"low": 0.0, "high": 1.0}, 0.0, 0.0, 1.0, False),
        ({"low": 0.0, "high": 1.0}, None, 0.0, 1.0, False),
        ({"low": -1.0, "high": 1.0}, -0.3, -0.9, -0.1, False),
        ({"low": 1e-3, "high": 1e-2, "log": True}, 5e-3, 5e-3 / 3, 1e-2, True),
        ({"low": 1, "high": 64, "int": True}, 4, 2, 12, True),
        ({"low": 0.0, "high": 2.0, "step": 0.25}, 0.5, 0.25, 1.5, False),
        ({"low": 1, "high": 5, "step": 4, "int": True}, 1, 1, 5, False),
    ],
)
def test_the_part_of_an_axis(
    axis: dict[str, Any], value: float | None, low: float, high: float, log: bool
) -> None:
    narrow = Axis.model_validate({**axis, "box": 3}).narrow(value)
    assert narrow.range == pytest.approx((low, high)) and narrow.log is log and narrow.box is None
