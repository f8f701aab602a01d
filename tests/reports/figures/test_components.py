"""Bars of Shapley values and interaction plots: the table's numbers, drawn."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from reports.errors import ReportError
from reports.figures.interactions import interactions, pairs_of
from reports.figures.shapley import shapley
from reports.frame import Frame
from reports.recipe import Figure, Table
from reports.stats.describe import t_interval
from reports.tables.build import build
from reports.tables.cells import cells_of, levels_of
from tests.reports.made import METRIC, frame

NAMES = ("agnostic", "specific", "split")
CELLS = [dict(zip(NAMES, at, strict=True)) for at in itertools.product(("off", "on"), repeat=3)]


def value(at: dict[str, Any], seed: int) -> float:
    """0.3, 0.02 for each of the first two, 0.04 more for both, 0.01 less for the third; noise."""
    a, b, c = (at[name] == "on" for name in NAMES)
    noise = ((7 * seed + 3 * a + 5 * b + 2 * c) % 5) / 1000
    return 0.3 + 0.02 * (a + b) + 0.04 * (a and b) - 0.01 * c + noise


def made() -> Frame:
    return frame("components", CELLS, value)


def recipe(kind: str, **options: Any) -> Figure:
    return Figure(kind=kind, studies=("s",), metric=METRIC, options=options)


def effects(found: Frame) -> dict[str, dict[str, Any]]:
    table: Any = build(found, Table(kind="effects", study="s", metrics=(METRIC,)))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.numbers]
    return {row["term"]: row for row in rows}


def test_shapley_bars_are_the_numbers_of_the_table() -> None:
    found = made()
    drawn = shapley(found, recipe("shapley"))
    panel, rows = drawn.figure.axes[0], effects(found)
    names = [text.get_text() for text in panel.get_yticklabels()]
    widths = [bar.get_width() for bar in panel.patches]
    assert sorted(names) == sorted(NAMES)
    assert widths == pytest.approx([100 * rows[name]["shapley"] for name in names])
    assert widths == sorted(widths, reverse=True)
    total = np.mean([value(CELLS[-1], seed) - value(CELLS[0], seed) for seed in range(3)])
    assert sum(widths) == pytest.approx(100 * total)
    ends = [bar.lines[2][0].get_segments()[0][:, 0] for bar in panel.containers[1:]]
    table = [(100 * rows[name]["shapley_low"], 100 * rows[name]["shapley_high"]) for name in names]
    assert np.array(ends) == pytest.approx(np.array(table))
    assert "Interval: t over 3 seeds" in drawn.caption and len(drawn.spots) == 3


def test_shapley_values_are_of_all_combinations_alone() -> None:
    with pytest.raises(ReportError, match="no full factorial"):
        shapley(frame("components", CELLS[:-1], value), recipe("shapley"))
    drawn = shapley(frame("components", CELLS, lambda at, seed: None), recipe("shapley"))
    assert "no seed has every cell" in [text.get_text() for text in drawn.figure.axes[0].texts]


def test_interaction_lines_are_means_over_the_other_factors() -> None:
    found = made()
    drawn = interactions(found, recipe("interactions"))
    panels = drawn.figure.axes[:3]
    first = panels[0]
    assert first.get_title(loc="left").startswith("agnostic × specific\neffect +2.00 [")
    for i, other in enumerate(("off", "on")):
        line = first.containers[i].lines[0]
        expected, bars = [], []
        for at in ("off", "on"):
            here = [c for c in CELLS if c["agnostic"] == at and c["specific"] == other]
            seeds = [100 * float(np.mean([value(c, seed) for c in here])) for seed in range(3)]
            expected.append(np.mean(seeds))
            bars.append(t_interval(seeds))
        assert list(line.get_ydata()) == pytest.approx(expected)
        segments = first.containers[i].lines[2][0].get_segments()
        assert [tuple(segment[:, 1]) for segment in segments] == [
            pytest.approx(ends) for ends in bars
        ]
    assert len(drawn.spots) == 3 * 4
    rows = effects(found)
    size = 100 * rows["agnostic*specific"]["effect"]
    assert f"effect +{size:.2f} [" in first.get_title(loc="left")


def test_pairs_that_interact_most_come_first_and_top_cuts() -> None:
    drawn = interactions(made(), recipe("interactions", top=1))
    assert len(drawn.figure.axes) == 1 and "1 of 3 pairs that interact most" in drawn.caption
    drawn = interactions(made(), recipe("interactions", among=["split", "specific"]))
    assert [axes.get_xlabel() for axes in drawn.figure.axes] == ["split"]


def test_a_grid_of_one_seed_has_no_intervals_and_a_lost_cell_no_mean() -> None:
    grid = [{"a": a, "b": b} for a in (1, 2, 3) for b in (1, 2)]

    def one(at: dict[str, Any], seed: int) -> float | None:
        return None if at == {"a": 2, "b": 2} else 0.1 * at["a"] + 0.01 * at["b"]

    found = frame("grid", grid, one, seeds=1)
    (pair,) = pairs_of(
        cells_of(found, found.study("s"), METRIC), levels_of(found, found.study("s")), (), METRIC
    )
    assert (pair.x, pair.line) == ("a", "b") and len(pair.means) == 5
    assert pair.means["1", "2"].mean == pytest.approx(12.0) and pair.means["1", "2"].low is None
    drawn = interactions(found, recipe("interactions"))
    lengths = [len(c.lines[0].get_xdata()) for c in drawn.figure.axes[0].containers]
    assert lengths == [3, 2] and "bars" not in drawn.caption


def test_a_seed_that_lacks_a_cell_is_no_mean_of_fewer() -> None:
    def gappy(at: dict[str, Any], seed: int) -> float | None:
        lost = seed == 0 and at == CELLS[0]
        return None if lost else value(at, seed)

    found = frame("components", CELLS, gappy)
    pairs = pairs_of(
        cells_of(found, found.study("s"), METRIC), levels_of(found, found.study("s")), (), METRIC
    )
    pair = next(p for p in pairs if {p.x, p.line} == {"agnostic", "specific"})
    assert pair.means["off", "off"].n == 2 and pair.means["on", "on"].n == 3


def test_what_cannot_be_drawn_is_told() -> None:
    with pytest.raises(ReportError, match="fewer than two factors"):
        interactions(frame("grid", [{"a": 1}, {"a": 2}], value_of_a), recipe("interactions"))
    for options in ({"among": ["a"]}, {"among": ["a", "a"]}, {"top": 0}):
        with pytest.raises(ValidationError):
            recipe("interactions", **options)


def value_of_a(at: dict[str, Any], seed: int) -> float:
    return 0.1 * at["a"]
