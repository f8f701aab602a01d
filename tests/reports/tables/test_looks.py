"""Looks at verdicts with more seeds each time: levels, and what pages say of them."""

from __future__ import annotations

from typing import Any

import pytest

from reports.figures.forest import draw_forest_plot
from reports.frame import Frame
from reports.pages.markup import build_grid
from reports.pages.verdict_text import VerdictSection, format_plain_verdict
from reports.recipe import Recipe, Table
from reports.stats.blocks import BEYOND, compute_look_level
from reports.tables.build import build_all, build_table
from reports.tables.model import Sheet, TableData
from reports.tables.verdict import Verdict, judge_tables
from tests.reports.made import METRIC, divide, frame

NOISE = (0.000, 0.004, -0.003, 0.002, -0.004, 0.003, -0.001, 0.001, -0.002, 0.004)

ENDS = (("high", "low"), ("shapley_high", "shapley_low"))


def build(looks: list[int], planned: int | None = None, kind: str = "compare") -> Frame:
    coords: list[dict[str, Any]] = [{"variant": name} for name in ("plain", "ddml")]
    if kind == "components":
        coords = [{"a": a, "b": b} for a in ("off", "on") for b in ("off", "on")]

    def value(at: dict[str, Any], seed: int) -> float:
        shift = 3 * list(at.values()).count("on") + 5 * (at.get("variant") == "ddml")
        return 0.5 + NOISE[(seed + shift) % 10]

    made = frame(kind, coords, value, seeds=10)
    table = Table(kind=kind, study="s", metrics=(METRIC,), alone=True)
    recipe = Recipe(tables=(table,), primary=METRIC, looks=planned)
    made.document["report"] = recipe.model_dump()
    made.document["looks"] = [["s", size] for size in looks] + [["other", 7]]
    return made


def report(made: Frame) -> tuple[TableData, Verdict]:
    (table, *_) = build_all(made, made.recipe)
    assert isinstance(table, TableData)
    return table, judge_tables(made, [table])[0]


@pytest.mark.parametrize("planned", range(1, 8))
def test_planned_looks_share_5_percent_and_further_ones_add_half_a_percent(planned: int) -> None:
    levels = [1 - compute_look_level(look, planned) for look in range(1, planned + 40)]
    assert sum(levels[:planned]) == pytest.approx(0.05)
    assert sum(levels[planned:]) == pytest.approx(BEYOND, abs=1e-9)
    assert levels[planned - 1] == max(levels) == pytest.approx(0.05 if planned == 1 else 0.025)


@pytest.mark.parametrize(
    ("looks", "planned", "level", "words"),
    [
        ([], None, "95 %", ""),
        ([10], None, "95 %", ""),  # the same seeds again
        ([12], None, "95 %", ""),  # fewer seeds are shown than at that look
        ([1], None, "95 %", ""),  # one seed gave no verdict
        ([5], None, "99.75 %", "look 2 at these rows, of which 1 planned: level 99.75 %"),
        ([3, 5, 10], None, "99.88 %", "look 3 at these rows, of which 1 planned: level 99.88 %"),
        ([], 3, "98.75 %", "look 1 of 3 at these rows: level 98.75 %"),
        ([3, 5], 3, "97.5 %", "look 3 of 3 at these rows: level 97.5 %"),
    ],
)
@pytest.mark.parametrize("kind", ["compare", "components"])
def test_the_verdict_states_the_look_and_its_level(
    looks: list[int], planned: int | None, level: str, words: str, kind: str
) -> None:
    table, verdict = report(build(looks, planned, kind))
    _, single = report(build([], None, kind))
    assert verdict.look == words
    text = format_plain_verdict(VerdictSection("", [verdict], None))
    assert f"Intervals hold together with {level} over" in text and words in text
    assert f"[{level}]" in " ".join(build_grid(table).headers)
    gaps = [each.difference for each in (verdict, single)]
    widths = [gap.high - gap.low for gap in gaps if gap and gap.high and gap.low]
    assert (widths[0] > widths[1]) if words else (widths[0] == widths[1])
    assert any(note.startswith("Looks: ") for note in table.notes) == bool(words)


def test_over_splits_a_look_with_one_seed_counts_and_servers_looks_are_joined() -> None:
    made = divide(build([1, 10]), 5)
    made.cells["seed"] += 2 * made.cells["fold"]  # seeds of its own for each split
    assert made.count_looks("s") == 2
    assert build([1]).count_looks("s") == 1


@pytest.mark.parametrize("kind", ["compare", "components"])
def test_no_text_of_a_second_look_states_another_level(kind: str) -> None:
    made = build([5], 2, kind)
    table, verdict = report(made)
    text = format_plain_verdict(VerdictSection("", [verdict], None))
    drawn = draw_forest_plot([verdict])
    assert drawn is not None
    effects = build_table(made, Table(kind="effects", study="s", metrics=(METRIC,)))
    headers = build_grid(effects if kind == "components" else table).headers
    for words in (text, drawn.caption, " ".join(h for h in headers if "P(better)" not in h)):
        assert "97.5 %" in words and "95 %" not in words


def test_intervals_of_effects_are_as_long_as_those_of_verdicts_at_the_same_look() -> None:
    """At any look, a table must not print an interval that its verdict contradicts."""
    recipe, halves = Table(kind="effects", study="s", metrics=(METRIC,)), []
    for looks in ([], [5]):
        sheet = build_table(build(looks, None, "components"), recipe)
        assert isinstance(sheet, Sheet)
        first = dict(zip(sheet.columns, sheet.numbers[0], strict=True))
        halves.append([first[high] - first[low] for high, low in ENDS])
    assert all(later > 1.3 * sooner > 0 for sooner, later in zip(*halves, strict=True))
