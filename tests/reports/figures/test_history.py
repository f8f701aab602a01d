"""Optimisation history: the order of the proposals, the best so far, what was lost."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from reports.figures.history import history
from reports.recipe import Table
from reports.tables.cells import trials_of
from tests.reports.made import METRIC, frame

VALUES = [0.4, 0.6, None, 0.5, 0.7]


def made(metric: str = METRIC, seeds: int = 2) -> Any:
    def value(at: dict[str, Any], seed: int) -> float | None:
        level = VALUES[at["x"]]
        return None if level is None else level + 0.01 * seed

    points = [{"x": i} for i in range(5)]
    return frame("search", points, value, seeds=seeds, metric=metric)


def test_the_best_so_far_never_falls_and_lost_trials_keep_their_number() -> None:
    told = trials_of(made().study("s"), METRIC)
    assert [each.number for each in told.trials] == [1, 2, 4, 5] and told.lost == (3,)
    assert told.best_so_far(METRIC) == pytest.approx((0.405, 0.605, 0.605, 0.705))
    assert [each.result.n for each in told.trials] == [2, 2, 2, 2]


def test_where_less_is_better_it_never_rises() -> None:
    metric = "test/spectrum"
    told = trials_of(made(metric).study("s"), metric)
    assert told.best_so_far(metric) == pytest.approx((0.405, 0.405, 0.405, 0.405))


def test_it_follows_the_order_of_the_plan_not_of_the_store() -> None:
    cells = made().study("s")
    turned = pd.concat([cells.iloc[::-1]])
    assert trials_of(turned, METRIC) == trials_of(cells, METRIC)


def test_the_figure_has_dots_with_their_spread_and_the_line() -> None:
    drawn = history(made(), Table(kind="search", study="s"))
    axes = drawn.figure.axes[0]
    step = next(line for line in axes.lines if line.get_label() == "best so far")
    assert list(step.get_xdata()) == [1, 2, 4, 5]
    assert list(step.get_ydata()) == pytest.approx([40.5, 60.5, 60.5, 70.5])
    assert len(axes.collections) == 1  # the bars
    assert "Crosses: 1 without a result" in drawn.caption and "± one sd" in drawn.caption
    one = history(made(seeds=1), Table(kind="search", study="s"))
    assert not one.figure.axes[0].collections and "±" not in one.caption


def test_the_method_switched_off_is_a_level_and_no_proposal() -> None:
    points: list[dict[str, Any]] = [{"x": 0}, {"neutral": "yes"}, {"x": 1}]
    found = frame("search", points, lambda at, seed: 0.5 + at.get("x", 0.2) / 10, seeds=1)
    told = trials_of(found.study("s"), METRIC)
    assert [each.number for each in told.trials] == [1, 2] and told.neutral is not None
    assert told.neutral.mean == pytest.approx(0.52)
    assert "neutral" in history(found, Table(kind="search", study="s")).caption
