"""Figures over factors: Shapley bars, interactions, mean ranks, curves and heatmaps."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from reports.figures.factors import collect_lines
from reports.figures.heatmap import SPAN, compute_color_scale
from reports.figures.ranks import collect_blocks
from reports.frame import OTHER, Frame
from reports.recipe import (
    FactorCurves,
    FactorCurvesOptions,
    Figure,
    Heatmap,
    Table,
    expand_short_form,
)
from reports.stats.describe import pooled_sd, t_interval
from reports.tables.build import build_table
from reports.tables.labels import format_with_interval
from tests.reports.made import METRIC, draw_part, drawer, frame

NAMES = ("agnostic", "specific", "split")
CELLS = [dict(zip(NAMES, at, strict=True)) for at in itertools.product(("off", "on"), repeat=3)]


def gained(at: dict[str, Any], seed: int) -> float:
    """0.3, 0.02 for each of the first two, 0.04 more for both, 0.01 less for the third; noise."""
    a, b, c = (at[name] == "on" for name in NAMES)
    noise = ((7 * seed + 3 * a + 5 * b + 2 * c) % 5) / 1000
    return 0.3 + 0.02 * (a + b) + 0.04 * (a and b) - 0.01 * c + noise


def draw(found: Frame, kind: str, **options: Any) -> Any:
    return drawer(kind)(found, Figure(kind=kind, studies=("s",), metric=METRIC, options=options))


def texts(drawn: Any) -> list[str]:
    return [text.get_text() for text in drawn.figure.axes[0].texts]


def effects(found: Frame) -> dict[str, dict[str, Any]]:
    table: Any = build_table(found, Table(kind="effects", study="s", metrics=(METRIC,)))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.numbers]
    return {row["term"]: row for row in rows}


# --- Shapley values and interactions: the numbers of the table of effects


def test_shapley_bars_are_the_numbers_of_the_table() -> None:
    found = frame("components", CELLS, gained)
    drawn, rows = draw(found, "shapley"), effects(found)
    panel = drawn.figure.axes[0]
    names = [text.get_text() for text in panel.get_yticklabels()]
    widths = [bar.get_width() for bar in panel.patches]
    assert sorted(names) == sorted(NAMES) and widths == sorted(widths, reverse=True)
    assert widths == pytest.approx([100 * rows[name]["shapley"] for name in names])
    total = np.mean([gained(CELLS[-1], seed) - gained(CELLS[0], seed) for seed in range(3)])
    assert sum(widths) == pytest.approx(100 * total)
    assert not draw(frame("components", CELLS[:-1], gained), "shapley").spots


def test_interaction_lines_are_means_over_the_other_factors() -> None:
    found = frame("components", CELLS, gained)
    drawn = draw(found, "interactions")
    first = drawn.figure.axes[0]
    assert first.get_title(loc="left").startswith("agnostic × specific\neffect +2.00 [")
    for i, other in enumerate(("off", "on")):
        expected, bars = [], []
        for at in ("off", "on"):
            here = [c for c in CELLS if c["agnostic"] == at and c["specific"] == other]
            seeds = [100 * float(np.mean([gained(c, seed) for c in here])) for seed in range(3)]
            expected.append(np.mean(seeds))
            bars.append(pytest.approx(t_interval(seeds)))
        assert list(first.containers[i].lines[0].get_ydata()) == pytest.approx(expected)
        segments = first.containers[i].lines[2][0].get_segments()
        assert [tuple(segment[:, 1]) for segment in segments] == bars
    one = frame("grid", [{"a": 1}, {"a": 2}], lambda at, seed: 0.1 * at["a"])
    assert not draw(one, "interactions").spots


# --- rows `…, not neutral`, and cells that are copies

METHODS = [{"loss": loss, "method": m} for loss in ("pa", "ms") for m in ("plain", "ddml")]
METHOD_NAMES = [" ".join(at.values()) for at in METHODS]


def of_methods(at: dict[str, Any], seed: int) -> float:
    """The best of `ms ddml` is `ms plain`, so that both are copies; with the method on it loses."""
    if "neutral" in at:
        return 0.1 + seed / 1000
    at = {**at, "method": "plain"} if at["loss"] == "ms" else at
    noise = ((7 * seed + 3 * ord(at["loss"][0]) + 2 * len(at["method"])) % 5) / 1000
    return 0.4 + 0.05 * (at["method"] == "ddml") + 0.1 * (at["loss"] == "pa") + noise


def methods(*, other: bool = True) -> Frame:
    coords = [*METHODS, {**METHODS[-1], "neutral": "left out"}]
    names = [*METHOD_NAMES, f"{METHOD_NAMES[-1]}{OTHER}"]
    count = len(coords) if other else len(METHODS)
    return frame("compare", coords[:count], of_methods, seeds=4, names=names[:count])


def drawn_means(drawn: Any) -> list[list[float]]:
    return [list(bars.lines[0].get_ydata()) for bars in drawn.figure.axes[0].containers]


def test_a_row_that_is_not_neutral_adds_no_second_value_to_a_level() -> None:
    interactions = draw(methods(), "interactions")
    assert drawn_means(interactions) == drawn_means(draw(methods(other=False), "interactions"))
    assert {run.split("-")[0] for run in interactions.run_ids} == {f"run{i}" for i in range(4)}
    bars, rows = draw(methods(), "shapley"), effects(methods())
    widths = [bar.get_width() for bar in bars.figure.axes[0].patches]
    shares = [100 * rows[name]["shapley"] for name in ("loss", "method")]
    assert widths == pytest.approx(sorted(shares, reverse=True))
    curves = draw_part(
        methods(), factor_curves=[FactorCurves(studies=("s",), x="loss", metric=METRIC)]
    )
    assert len(curves.figure.axes[0].containers) == 2, "a line for plain and one for ddml"


def test_an_interaction_has_the_interval_of_the_table_where_cells_are_copies() -> None:
    found = methods()
    term = effects(found)["loss*method"]
    text = format_with_interval(term["effect"], term["low"], term["high"], METRIC, 2)
    (panel,) = draw(found, "interactions").figure.axes
    assert panel.get_title(loc="left").endswith(f"effect {text}")


# --- mean ranks over blocks

BETTER = {"plain": 0.0, "ddml": 0.2, "nir": 0.1}
CROSS = [
    {"data": data, "loss": loss, "method": method}
    for data, loss, method in itertools.product(("birds", "cars"), ("pa", "ms"), BETTER)
    if (loss, method) != ("ms", "nir")
]


def ranked(coords: dict[str, Any], seed: int) -> float:
    return 0.3 + BETTER[coords["method"]] + 0.01 * seed


def ranks(found: Frame, **options: Any) -> Any:
    return draw(found, "critical_difference", **{"factor": "method", **options})


def test_a_block_is_a_data_set_with_a_loss_and_one_that_lacks_a_level_is_left_out() -> None:
    found = frame("compare", CROSS, ranked)
    levels, blocks = collect_blocks(found.select_study("s"), "method", METRIC)
    assert levels == ["plain", "ddml", "nir"] and len(blocks) == 4
    means = {"plain": 0.31, "ddml": 0.51, "nir": 0.41}  # over seeds
    assert blocks[("data", "cars"), ("loss", "pa")] == pytest.approx(means)
    assert set(blocks[("data", "cars"), ("loss", "ms")]) == {"plain", "ddml"}
    drawn = ranks(found)
    assert "mean rank over 2 blocks" in drawn.caption and len(drawn.run_ids) == 3 * len(CROSS)
    assert "Blocks left out for lacking a level: birds, ms; cars, ms." in drawn.caption
    assert {"ddml (1.00)", "plain (3.00)"} <= {text.strip() for text in texts(drawn)}
    fewer = ranks(found, without=["nir"]).caption
    assert "mean rank over 4 blocks" in fewer and "Left out: nir." in fewer
    names = [" ".join(c.values()) for c in CROSS]
    neutral = [*CROSS, {**CROSS[1], "neutral": "left out"}]
    tuned = frame("compare", neutral, ranked, names=[*names, f"{names[1]}, not neutral"])
    assert "over 2 blocks" in ranks(tuned).caption
    assert "nothing to rank" in ranks(frame("compare", CROSS, lambda at, seed: None)).caption


# --- curves over a factor

GRID = [{"method.alpha": a, "method.gamma": g} for a in (1e-3, 1e-2) for g in (1e-7, 1e-5, 1e-3)]


def curve(at: dict[str, Any], seed: int) -> float:
    return 0.5 + 10 * at["method.alpha"] - math.log10(at["method.gamma"]) / 100 + seed / 1000


def lines(found: Frame, x: str, **options: Any) -> Any:
    return collect_lines(found.select_study("s"), FactorCurvesOptions(x=x, **options), METRIC)


def test_a_level_s_mean_and_interval() -> None:
    values = [0.5, 0.54, 0.58, 0.51]
    found = frame(
        "grid",
        [{"g": 1.0}, {"g": 0.1}],
        lambda at, s: values[s] if at["g"] == 1 else 0.4 if s == 0 else None,
        seeds=4,
    )
    (line,) = lines(found, "g")
    assert line.x == (0.1, 1.0) and line.n == (1, 4) and line.label == ""
    assert math.isnan(line.low[0]) and math.isnan(line.high[0])  # one seed: no interval
    x = 100 * np.array(values)
    assert line.mean == pytest.approx((40.0, x.mean()))
    low, high = scipy_stats.t.interval(0.95, 3, x.mean(), scipy_stats.sem(x))
    assert (line.low[1], line.high[1]) == pytest.approx((low, high), rel=1e-12)


def test_each_level_of_the_other_factor_has_a_line() -> None:
    found = lines(frame("grid", GRID, curve, seeds=2), "method.gamma")
    assert [line.label for line in found] == ["α = 0.001", "α = 0.01"]
    for line, alpha in zip(found, (1e-3, 1e-2), strict=True):
        points = [{"method.alpha": alpha, "method.gamma": x} for x in line.x]
        assert line.mean == pytest.approx([100 * curve(at, 0) + 0.05 for at in points])
    arms = [{"a": 1, "b": 5}, {"a": 2, "b": 5}, {"a": 3, "b": 5}, {"a": 2, "b": 4}]
    (line,) = lines(frame("grid", arms, lambda at, s: at["a"] / 10, seeds=1), "a")
    assert line.x == (1, 2, 3) and line.mean == pytest.approx((10, 20, 30)) and line.label == ""


def test_curves_are_drawn_over_any_kind_of_axis() -> None:
    found = frame("grid", GRID, curve, seeds=2)
    recipe = FactorCurves(studies=("s",), x="method.gamma", at={"method.alpha": 0.01})
    drawn = draw_part(found, factor_curves=[recipe])
    axes = drawn.figure.axes[0]
    assert len(axes.containers) == 1 and axes.get_legend() is None
    assert axes.get_xscale() == "log" and "α = 0.01" in drawn.caption
    words = frame("compare", [{"variant": v} for v in ("b", "a")], lambda at, s: 0.5, seeds=1)
    axes = draw_part(words, factor_curves=[FactorCurves(studies=("s",), x="variant")]).figure.axes[
        0
    ]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b"]


# --- heatmaps: colours of their own, with the scatter of the seeds on the scale

PART = Heatmap(study="s", x="method.alpha", y="method.beta", title="At gamma = 1")
FIGURE = expand_short_form(PART, "heatmap")
POINTS = [{"method.alpha": a, "method.beta": b} for a in (1, 2) for b in (1, 2)]


def map_of(gain: float, *, scatter: float = 0.01, seeds: int = 3) -> Frame:
    def value(at: dict[str, Any], seed: int) -> float:
        return 0.5 + gain * (at["method.alpha"] - 1) + scatter * (seed - (seeds - 1) / 2)

    return frame("grid", POINTS, value, seeds=seeds)


def test_pooled_sd_is_that_of_all_deviations_from_their_own_means() -> None:
    groups = [[1.0, 2.0, 4.0], [10.0, 11.0], [5.0], [float("nan"), 7.0]]
    deviations = np.concatenate([np.array(g) - np.mean(g) for g in groups[:2]])
    assert pooled_sd(groups) == (pytest.approx(np.sqrt((deviations**2).sum() / 3)), 2)
    assert pooled_sd([[1.0], []]) is None


def test_noise_spans_a_small_part_of_the_colours_and_a_small_effect_all_of_them() -> None:
    noise, effect = (
        compute_color_scale(map_of(0.002), FIGURE),
        compute_color_scale(map_of(0.3), FIGURE),
    )
    assert noise.sd == pytest.approx(1.0)
    assert noise.high - noise.low == pytest.approx(SPAN * 1.0)
    assert (noise.low + noise.high) / 2 == pytest.approx(50.1)
    assert (effect.low, effect.high) == pytest.approx((50.0, 80.0))
    drawn = draw_part(map_of(0.02, scatter=0.001), heatmaps=[PART])
    assert drawn.figure.axes[0].images[0].get_clim() == pytest.approx((50.0, 52.0))
