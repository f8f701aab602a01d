"""What each comparison is called, and what is said where nothing can be told."""

from __future__ import annotations

from typing import Any

import pytest

from reports.figures.forest import draw_forest_plot
from reports.frame import Frame
from reports.pages import latex, markup
from reports.pages import verdict as words
from reports.recipe import Recipe, Table
from reports.stats.paired import count_pairs_needed, pairs_for_power
from reports.tables.build import build_all, build_table
from reports.tables.model import AnyTable, TableData
from reports.tables.verdict import Verdict, group_verdicts, judge_tables, summarize_verdicts
from tests.reports.made import METRIC, frame

# Seed by seed: the scatter of the differences, and that of the seeds, which pairs away.
NOISE = (0.004, -0.006, 0.001, 0.005, -0.004, 0.002, -0.003, 0.006)
LEVELS = [{"a": a, "b": b} for a in ("on", "off") for b in ("on", "off")]


def made(
    shift: float, *, seeds: int = 8, metric: str = METRIC, rows: int = 2, **more: Any
) -> Frame:
    """Variants that are better than the first by `shift` on average over 8 seeds."""
    names = ["plain", "ddml", "nir", "idml"][:rows]
    scatter = more.pop("scatter", 1.0)

    def value(at: dict[str, Any], seed: int) -> float:
        extra = 0.0 if at["variant"] == "plain" else shift + scatter * NOISE[seed]
        return 0.5 + 0.02 * seed + extra

    variants = [{"variant": name} for name in names]
    return frame("compare", variants, value, seeds=seeds, names=names, metric=metric, **more)


def compared(found: Frame, metric: str = METRIC) -> AnyTable:
    return build_table(found, Table(kind="compare", study="s", metrics=(metric,)))


def judge(found: Frame, metric: str = METRIC) -> Verdict:
    return judge_tables([compared(found, metric)])[0]


def components(gain: float) -> Frame:
    def value(at: dict[str, Any], seed: int) -> float:
        return gain * (at["a"] == "on") + seed / 7

    return frame("components", LEVELS, value, seeds=3)


@pytest.mark.parametrize(
    ("shift", "metric", "call"),
    [
        (0.05, METRIC, "better"),
        (-0.05, METRIC, "worse"),
        (0.05, "test/spectrum", "worse"),
        (-0.05, "test/spectrum", "better"),
        (0.0005, METRIC, "cannot tell"),
    ],
)
def test_calls_follow_the_corrected_test_and_the_metric(
    shift: float, metric: str, call: str
) -> None:
    found = made(shift, metric=metric)
    verdict = judge(found, metric)
    assert verdict.call == call and verdict.n == 8
    assert verdict.baseline == "plain" and verdict.label == "ddml"
    assert (verdict.p is not None and verdict.p <= 0.05) == (call != "cannot tell")
    assert (verdict.needed is None) == (call != "cannot tell")
    # neither the highest mean, from which nothing tells the others, nor a baseline that won
    table = compared(found, metric)
    text = markup.format_markdown_table(table)
    bold = [line.split(" | ")[0] for line in text.splitlines() if "| **" in line]
    assert bold == (["| ddml"] if call == "better" else [])
    for written in (text, latex.format_latex(table)):
        assert ("Bold: better than the baseline row" in written) == (call == "better")


def test_seeds_that_would_settle_it_follow_from_the_scatter_of_the_differences() -> None:
    found = made(0.0015)
    table = compared(found)
    assert isinstance(table, TableData)
    comparison = table.rows[1].measured[METRIC].compared
    assert comparison is not None and comparison.dz is not None
    expected = pairs_for_power(comparison.dz)
    assert expected is not None and expected > 8 and judge(found).needed == expected
    assert f"about {expected} seeds would settle it" in words.format_evidence(judge(found))
    narrow = judge(made(0.0015, scatter=0.5)).needed
    assert narrow is not None and narrow < expected
    for verdict in judge_tables([compared(made(0.0015, rows=4))]):
        assert verdict.needed is not None and verdict.needed > expected, "more comparisons"


def test_too_few_seeds_for_any_verdict_is_said_though_the_interval_leaves_out_zero() -> None:
    verdict, one = judge(made(0.05, seeds=4)), judge(made(0.05, seeds=1))
    assert verdict.difference is not None and (verdict.difference.low or 0) > 0
    assert verdict.call == "cannot tell" and not verdict.possible
    assert verdict.needed == count_pairs_needed(1) == 6
    assert "too few for any verdict; about 6 would settle it" in words.format_evidence(verdict)
    assert one.needed is None and "one seed shows no scatter" in words.format_evidence(one)


@pytest.mark.parametrize(
    ("value", "call", "note"), [(1.0, "saturated", "Saturated"), (0.5, "no difference", "No diff")]
)
def test_a_metric_that_tells_no_row_from_another_is_called_so(
    value: float, call: str, note: str
) -> None:
    variants = [{"variant": name} for name in ("plain", "ddml", "nir")]
    found = frame("compare", variants, lambda at, seed: value)
    table: Any = compared(found)
    assert not any(row.measured[METRIC].better for row in table.rows)
    (limit,) = (text for text in table.notes if text.startswith(("Saturated", "No difference")))
    calls = judge_tables([table])
    assert limit.startswith(note) and [verdict.call for verdict in calls] == [call, call]
    assert summarize_verdicts(found, calls).endswith(f"0 cannot tell, 2 {call}.")
    assert words.format_evidence(calls[0])


def test_effects_of_exactly_zero_share_no_variation() -> None:
    for gain, shares in ((0.0, ["–"] * 3), (0.1, ["100.0", "0.0", "0.0"])):
        table: Any = build_table(components(gain), Table(kind="effects", study="s"))
        assert [row[4].text for row in table.rows] == shares
        assert any("no effect. Every cell" in note for note in table.notes) == (gain == 0)


def test_nothing_finished_is_the_verdict_of_an_empty_sweep() -> None:
    found = frame("compare", [{"variant": "plain"}, {"variant": "b"}], lambda at, seed: None)
    tables = build_all(found, Recipe(tables=(Table(kind="compare", study="s"),)))
    calls = judge_tables(tables)
    assert summarize_verdicts(found, calls).startswith("Nothing has finished: 0 of 6 trials")
    assert [verdict.call for verdict in calls] == ["no result"] and draw_forest_plot(calls) is None
    assert "Measured: nothing yet, no trial has finished." in tables[0].notes
    search = frame("search", [{"x": 1}, {"x": 2}], lambda at, seed: at["x"] / 10)
    assert "no comparison to judge" in summarize_verdicts(
        search, judge_tables([build_table(search, Table(kind="search", study="s"))])
    )


def test_tuning_is_told() -> None:
    for tuning, study, text in (
        ({"plain": 16, "ddml": 16}, {}, "tuned with 16 trials"),
        ({"plain": 16, "ddml": 32}, {}, "tuned with 32 trials, the baseline with 16"),
        ({"plain": 0, "ddml": 0}, {}, "not tuned"),
        ({}, {"tuning": "as_published"}, "as published"),
        ({}, {}, "tuning not recorded"),
    ):
        verdict = judge(made(0.05, tuning=tuning, study=study))
        assert verdict.tuned == text and words.format_evidence(verdict).endswith(f"; {text}")


def test_variants_at_their_own_best_come_first_and_components_have_words() -> None:
    found = components(0.1)
    parts = [Table(kind=kind, study="s", title=kind) for kind in ("components", "compare")]
    calls = judge_tables([build_table(found, part) for part in parts])
    assert [v.title for v in calls] == ["compare"] * 3 + ["components"] * 3
    assert {v.label for v in calls[3:]} == {"a", "b", "a + b"} and calls[3].baseline == "none"
    assert "tun" not in words.format_evidence(calls[3]), "its cells share what they stand around"
    text = words.format_plain_verdict(summarize_verdicts(found, calls), calls)
    assert text.count("\n") == 1 + 2 + 6
    assert text.index("compare: MAP@R") < text.index("components: MAP@R")


def test_the_forest_has_a_line_a_difference_and_a_panel_a_unit() -> None:
    one, other = judge(made(0.05)), judge(made(0.05, metric="test/spectrum"), "test/spectrum")
    drawn = draw_forest_plot([one, other])
    assert drawn is not None and one.difference is not None
    first, second = drawn.figure.axes
    zero, interval, point = first.lines
    low, high = one.difference.low, one.difference.high
    assert low is not None and high is not None
    assert list(interval.get_xdata()) == [100 * low, 100 * high]
    assert list(point.get_xdata()) == [100 * one.difference.mean] and point.get_marker() == "^"
    assert list(zero.get_xdata()) == [0, 0]
    assert [label.get_text() for label in first.get_yticklabels()] == ["ddml"]
    assert "points" in first.get_xlabel() and "points" not in second.get_xlabel()


def test_the_forest_tells_baselines_of_one_table_apart() -> None:
    """Each row against the plain one of its own loss: two groups, each below its baseline."""
    levels = [{"loss": x, "method": m} for m in ("plain", "ddml") for x in ("pa", "ms")]
    names = [f"{at['method']} {at['loss']}" for at in levels]
    found = frame("compare", levels, lambda at, seed: 0.1 * (at["loss"] == "pa"), names=names)
    recipe = Table(kind="compare", study="s", metrics=(METRIC,), within=("loss",), title="All")
    calls = judge_tables([build_table(found, recipe)])
    assert [len(group) for group in group_verdicts(calls)] == [1, 1]
    drawn = draw_forest_plot(calls)
    assert drawn is not None
    titles = [text.get_text() for text in drawn.figure.axes[0].texts]
    titles = [title for title in titles if "against" in title]
    assert titles == [f"All (against {verdict.baseline})" for verdict in calls]
    assert len({*titles}) == 2
