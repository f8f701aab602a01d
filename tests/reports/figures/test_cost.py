"""Cost against quality: the cells of several studies, and the front that none of them beats."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pytest

from reports.figures.cost import collect_cost_points, cost, find_pareto_front
from reports.frame import Frame
from reports.recipe import Figure
from tests.reports.made import METRIC, Row, assemble, divide, frame

SECONDS = {"a": 10.0, "b": 20.0, "c": 200.0, "d": 210.0}
VALUES = {"a": 0.40, "b": 0.39, "c": 0.60, "d": 0.60}
RECIPE = Figure(kind="cost", studies=("s",), metric=METRIC)


def made(metric: str = METRIC, *, seeds: int = 2) -> Frame:
    def value(at: dict[str, Any], seed: int) -> float:
        return VALUES[at["variant"]] + 0.01 * seed

    found = frame(
        "compare", [{"variant": name} for name in VALUES], value, metric=metric, seeds=seeds
    )
    paid = [SECONDS[name] + seed for name in VALUES for seed in range(seeds)]
    return Frame(None, found.parents, found.trials.assign(seconds=paid))


def test_the_front_is_optunas() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 12, 60) / 4, rng.integers(0, 12, 60) / 4  # with ties
    study = optuna.create_study(directions=["minimize", "maximize"])
    trials = [
        optuna.trial.create_trial(values=[a, b], user_attrs={"i": i})
        for i, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True))
    ]
    study.add_trials(trials)
    found = find_pareto_front(x.tolist(), y.tolist())
    assert set(found) == {trial.user_attrs["i"] for trial in study.best_trials}
    assert find_pareto_front([1.0, float("nan"), 0.5], [1.0, 9.0, float("inf")]) == (0,)


def test_a_cell_s_point_is_its_means_and_with_folds_a_seed_costs_all_of_them() -> None:
    found = made()
    points = collect_cost_points(found, "s", METRIC, "seconds")
    assert [(p.cell, p.n) for p in points] == [(f"variant={name}", 2) for name in VALUES]
    assert [p.cost for p in points] == pytest.approx([c + 0.5 for c in SECONDS.values()])
    assert [p.value for p in points] == pytest.approx([100 * v + 0.5 for v in VALUES.values()])
    found.cells = found.cells.assign(fold=[0, 1] * len(VALUES), seed=0)
    folded = [p.cost for p in collect_cost_points(found, "s", METRIC, "seconds")]
    assert folded == pytest.approx([2 * c + 1 for c in SECONDS.values()])


@pytest.mark.parametrize("splits", [2, 4])
def test_with_splits_a_cost_is_that_of_a_trial(splits: int) -> None:
    points = collect_cost_points(divide(made(seeds=4), splits), "s", METRIC, "seconds")
    assert [p.n for p in points] == [splits] * len(VALUES)
    assert [p.cost for p in points] == pytest.approx([c + 1.5 for c in SECONDS.values()])


def test_with_searches_a_cost_is_their_mean() -> None:
    studies = ("s", "s_search2")
    rows = [
        Row(study, "a", {"variant": "a"}, 0, seed, 0.5, f"{study}-{seed}")
        for study in studies
        for seed in range(2)
    ]
    design = {"design": "compare"}
    found = assemble(rows, dict.fromkeys(studies, design), searches={"s": ["s_search2"]})
    found.cells["seconds"] = [10.0, 11.0, 20.0, 21.0]
    (point,) = collect_cost_points(found, "s", METRIC, "seconds")
    assert (point.n, point.cost) == (2, pytest.approx(15.5))


def test_marks_and_the_front_are_drawn() -> None:
    drawn = cost(made(), RECIPE)
    assert not cost(made(), RECIPE.model_copy(update={"options": {"cost": "steps"}})).spots
    panel = drawn.figure.axes[0]
    dots = np.asarray(panel.collections[0].get_offsets())
    assert len(dots) == len(VALUES) == len(drawn.spots)
    (line,) = panel.lines
    assert list(line.get_xdata()) == pytest.approx([10.5, 200.5])
    assert list(line.get_ydata()) == pytest.approx([40.5, 60.5])
    assert panel.get_xscale() == "log" and "variant=a, variant=c." in drawn.caption
    less = cost(made("test/spectrum"), RECIPE.model_copy(update={"metric": "test/spectrum"}))
    assert list(less.figure.axes[0].lines[0].get_ydata()) == pytest.approx([0.405, 0.395])
