"""Figures of a search: what is drawn is what the trials gave, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.cells import collect_trials, find_sign
from tests.reports.made import METRIC, drawer, frame
from trainables.words.errors import ReportError

SPACE = {
    "optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True},
    "loss.margin": {"low": 0.0, "high": 0.5},
    "loss.name": {"choice": ["ms", "pa"]},
    "loss.alpha": {"low": 8, "high": 64, "int": True, "when": {"loss.name": "pa"}},
}
LOST = 3


def point(i: int) -> dict[str, Any]:
    own = {"loss.alpha": 8 + 4 * i} if i % 2 else {}
    name = {"loss.name": "pa" if i % 2 else "ms"}
    return {"optimizer.lr": 10 ** (-4 + i / 6), "loss.margin": 0.04 * i, **name, **own}


POINTS = [*map(point, range(12)), {"neutral": "yes"}]


def value(at: dict[str, Any], seed: int) -> float | None:
    if at == POINTS[LOST]:
        return None
    return 0.6 if "neutral" in at else 0.5 + at["loss.margin"] / 5 + 0.01 * seed


def made(metric: str = METRIC) -> Frame:
    return frame("search", POINTS, value, seeds=2, study={"space": SPACE}, metric=metric)


def recipe(kind: str, **options: Any) -> Figure:
    return Figure(kind=kind, studies=("s",), metric=METRIC, options=options)


DONE = [i for i in range(12) if i != LOST]
MEANS = {i + 1: 0.5 + 0.008 * i + 0.005 for i in DONE}  # number → mean over two seeds


def test_trials_are_numbered_as_proposed_and_the_best_so_far_follows() -> None:
    means = list(MEANS.values())
    minimize = [{"metric": METRIC, "direction": "minimize"}]
    cases: list[tuple[str, list[dict[str, str]], Any, int]] = [
        (METRIC, [], np.maximum, 12),
        ("test/spectrum", [], np.minimum, 1),
        (METRIC, minimize, np.minimum, 1),  # as the search declares, though more is better
    ]
    for metric, objectives, better, number in cases:
        found = made(metric)
        found.document["studies"]["s"]["objectives"] = objectives
        cells, sign = found.select_study("s"), find_sign(found, "s", metric)
        trials = collect_trials(cells, metric)
        assert {each.number: each.result.mean for each in trials.trials} == pytest.approx(MEANS)
        assert trials.lost == (LOST + 1,), "it keeps its number"
        assert trials.neutral is not None and trials.neutral.mean == pytest.approx(0.6)
        assert trials.compute_best_so_far(sign) == pytest.approx(better.accumulate(means))
        best = trials.find_best(sign)
        assert best is not None and best.number == number
        assert collect_trials(cells.iloc[::-1], metric) == trials


def test_slices_have_a_dot_for_each_trial_that_has_the_parameter() -> None:
    drawn = drawer("slices")(made(), recipe("slices"))
    panels = drawn.figure.axes[:4]
    names = ["optimizer.lr", "loss.margin", "loss.name", "α"]
    assert [panel.get_xlabel() for panel in panels] == names
    for panel, (path, axis) in zip(panels, SPACE.items(), strict=True):
        dots = np.asarray(panel.collections[0].get_offsets())
        have = [i for i in DONE if path in POINTS[i]]
        x = [POINTS[i][path] for i in have]
        if "choice" in axis:
            x = [["ms", "pa"].index(each) for each in x]
        assert dots == pytest.approx(np.column_stack([x, [100 * MEANS[i + 1] for i in have]]))
    assert panels[0].get_xscale() == "log" and panels[1].get_xscale() == "linear"
    chosen = drawer("slices")(made(), recipe("slices", axes=["loss.name", "optimizer.lr"]))
    assert [panel.get_xlabel() for panel in chosen.figure.axes] == ["loss.name", "optimizer.lr"]


def test_a_recipe_that_does_not_fit_is_answered_in_one_line() -> None:
    grid = frame("grid", POINTS[:3], value)
    with pytest.raises(ReportError, match="a grid study"):
        drawer("slices")(grid, recipe("slices"))
    with pytest.raises(ValidationError, match="slices shows one study"):
        Figure.model_validate({"kind": "slices", "studies": ["s", "t"]})
    for removed in ("parallel", "importance"):
        with pytest.raises(ValidationError, match=f"'{removed}' is no kind of figure"):
            recipe(removed)
