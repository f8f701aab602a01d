"""Figures of a search: what is drawn is what the trials gave, and nothing else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from pydantic import ValidationError

from reports.errors import ReportError
from reports.figures.history import draw_search_history
from reports.figures.parallel import LEFT_OUT
from reports.frame import Frame
from reports.recipe import Figure, Table
from reports.stats.importance import compute_importances
from reports.tables.cells import collect_trials
from tests.reports.made import METRIC, drawer, frame

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
    for metric, better, number in ((METRIC, np.maximum, 12), ("test/spectrum", np.minimum, 1)):
        cells = made(metric).select_study("s")
        trials = collect_trials(cells, metric)
        assert {each.number: each.result.mean for each in trials.trials} == pytest.approx(MEANS)
        assert trials.lost == (LOST + 1,), "it keeps its number"
        assert trials.neutral is not None and trials.neutral.mean == pytest.approx(0.6)
        assert trials.compute_best_so_far(metric) == pytest.approx(better.accumulate(means))
        best = trials.find_best(metric)
        assert best is not None and best.number == number
        assert collect_trials(cells.iloc[::-1], metric) == trials


def test_a_history_has_dots_with_their_spread_and_the_best_so_far() -> None:
    drawn = draw_search_history(made(), Table(kind="search", study="s"))
    axes = drawn.figure.axes[0]
    (step,) = [line for line in axes.lines if line.get_label() == "best so far"]
    assert list(step.get_xdata()) == list(MEANS)
    assert list(step.get_ydata()) == pytest.approx([100 * mean for mean in MEANS.values()])
    assert len(axes.collections) == 1  # the bars
    for words in ("Crosses: 1 without a result", "± one sd", "Dashed: neutral"):
        assert words in drawn.caption
    single = frame("search", POINTS, value, seeds=1, study={"space": SPACE})
    one = draw_search_history(single, Table(kind="search", study="s"))
    assert not one.figure.axes[0].collections and "±" not in one.caption


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
    assert [text.get_text() for text in panels[2].get_xticklabels()] == ["ms", "pa"]
    assert len(drawn.spots) == 3 * len(DONE) + sum(i % 2 for i in DONE)
    assert "11 trials" in drawn.caption and "Dashed: neutral" in drawn.caption
    dashed = [line for line in panels[0].lines if line.get_linestyle() == "--"]
    assert [float(line.get_ydata()[0]) for line in dashed] == pytest.approx([60.0])
    chosen = drawer("slices")(made(), recipe("slices", axes=["loss.name", "optimizer.lr"]))
    assert [panel.get_xlabel() for panel in chosen.figure.axes] == ["loss.name", "optimizer.lr"]


def test_parallel_lines_pass_the_places_of_their_values() -> None:
    drawn = drawer("parallel")(made(), recipe("parallel"))
    lines, _ = drawn.figure.axes[0].collections
    assert isinstance(lines, LineCollection)
    segments = np.array(lines.get_segments())
    assert segments.shape == (len(DONE), len(SPACE) + 1, 2)
    means = [MEANS[i + 1] for i in DONE]
    for segment, i in zip(segments, DONE, strict=True):  # the best is drawn last
        at = POINTS[i]
        share = (MEANS[i + 1] - min(means)) / (max(means) - min(means))
        alpha = (at["loss.alpha"] - 8) / 56 if "loss.alpha" in at else LEFT_OUT
        expected = [i / 12, at["loss.margin"] / 0.5, float(i % 2), alpha, share]
        assert segment[:, 1] == pytest.approx(expected)
    thick = max(drawn.figure.axes[0].lines, key=lambda line: line.get_linewidth())
    assert list(thick.get_ydata()) == pytest.approx(list(segments[-1][:, 1]))
    assert "without that parameter" in drawn.caption and len(drawn.spots) == len(DONE)


def test_importance_bars_are_optunas_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = drawer("importance")  # imported before the limit is another
    monkeypatch.setattr("reports.stats.importance.LEAST", 10)
    drawn = draw(made(), recipe("importance"))
    told = compute_importances([POINTS[i] for i in DONE], [MEANS[i + 1] for i in DONE], SPACE)
    assert told is not None
    panel = drawn.figure.axes[0]
    widths = [bar.get_width() for bar in panel.patches]
    assert widths == pytest.approx([100 * share for share in told.shares.values()])
    assert math.fsum(widths) == pytest.approx(100)
    assert [text.get_text() for text in panel.texts] == [f"{width:.1f}" for width in widths]
    assert "11 trials" in drawn.caption


def test_a_recipe_that_does_not_fit_is_answered_in_one_line() -> None:
    with pytest.raises(ReportError, match=r"'loss\.rate'; it searches optimizer\.lr"):
        drawer("slices")(made(), recipe("slices", axes=["loss.rate"]))
    grid = frame("grid", POINTS[:3], value)
    for kind in ("slices", "parallel", "importance"):
        with pytest.raises(ReportError, match="a grid study"):
            drawer(kind)(grid, recipe(kind))
    for options, words in (
        ({"kind": "slices", "options": {"axes": ["a", "a"]}}, "once"),
        ({"kind": "parallel", "options": {"axis": []}}, "axis"),
        ({"kind": "importance", "options": {"evaluator": "shap"}}, "evaluator"),
        ({"kind": "importance", "studies": ["s", "t"]}, "one study for importance"),
    ):
        with pytest.raises(ValidationError, match=words):
            Figure.model_validate({"studies": ["s"], **options})
