"""What each comparison is called, and what is said where nothing can be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reports.figures.forest import forest
from reports.frame import Frame
from reports.pages import latex, markup
from reports.pages import verdict as words
from reports.recipe import Table
from reports.stats.paired import pairs_for_power, pairs_needed
from reports.tables.build import build, build_all
from reports.tables.model import TableData
from reports.tables.verdict import Verdict, groups, headline, verdicts
from tests.reports.made import METRIC, frame

Value = Callable[[dict[str, Any], int], float | None]
# Seed by seed: the scatter of the differences, and that of the seeds, which pairs away.
NOISE = (0.004, -0.006, 0.001, 0.005, -0.004, 0.002, -0.003, 0.006)


def made(
    shift: float, *, seeds: int = 8, metric: str = METRIC, scatter: float = 1.0, **more: Any
) -> Frame:
    """Two variants, the second better by `shift` on average over 8 seeds."""
    variants = [{"variant": "plain"}, {"variant": "ddml"}]

    def value(at: dict[str, Any], seed: int) -> float:
        extra = 0.0 if at["variant"] == "plain" else shift + scatter * NOISE[seed]
        return 0.5 + 0.02 * seed + extra

    names = ["plain", "ddml"]
    return frame("compare", variants, value, seeds=seeds, names=names, metric=metric, **more)


def judge(found: Frame, metric: str = METRIC) -> Verdict:
    (verdict,) = verdicts([build(found, Table(kind="compare", study="s", metrics=(metric,)))])
    return verdict


def alike(value: float, seeds: int = 3) -> Frame:
    variants = [{"variant": name} for name in ("plain", "ddml", "nir")]
    return frame("compare", variants, lambda at, seed: value, seeds=seeds)


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
    verdict = judge(made(shift, metric=metric), metric)
    assert verdict.call == call and verdict.n == 8
    assert verdict.baseline == "plain" and verdict.label == "ddml"
    assert (verdict.p is not None and verdict.p <= 0.05) == (call != "cannot tell")
    assert (verdict.needed is None) == (call != "cannot tell")


def test_seeds_that_would_settle_it_follow_from_the_scatter_of_the_differences() -> None:
    found = made(0.0015)
    table = build(found, Table(kind="compare", study="s"))
    assert isinstance(table, TableData)
    told = table.rows[1].measured[METRIC].compared
    assert told is not None and told.dz is not None
    expected = pairs_for_power(told.dz)
    assert expected is not None and expected > 8
    assert judge(found).needed == expected
    text = words.evidence(judge(found))
    assert f"n = 8 seeds; about {expected} seeds would settle it" in text
    wide, narrow = judge(made(0.0015)).needed, judge(made(0.0015, scatter=0.5)).needed
    assert wide is not None and narrow is not None and narrow < wide


def test_too_few_seeds_for_any_verdict_is_said_though_the_interval_leaves_out_zero() -> None:
    verdict = judge(made(0.05, seeds=4))
    assert verdict.difference is not None and verdict.difference.low is not None
    assert verdict.difference.low > 0 and verdict.call == "cannot tell"
    assert verdict.needed == pairs_needed(1) and not verdict.possible
    assert "n = 4 seeds; too few for any verdict; about 6 would settle it" in words.evidence(
        verdict
    )
    one = judge(made(0.05, seeds=1))
    assert one.needed is None and "one seed shows no scatter" in words.evidence(one)


def test_more_comparisons_ask_for_more_seeds() -> None:
    def value(at: dict[str, Any], seed: int) -> float:
        return 0.5 + (0.0015 + NOISE[seed] if at["variant"] != "plain" else 0.0)

    several = [{"variant": name} for name in ("plain", "a", "b", "c")]
    found = verdicts(
        [build(frame("compare", several, value, seeds=8), Table(kind="compare", study="s"))]
    )
    alone = judge(made(0.0015)).needed
    assert alone is not None and all(v.needed is not None and v.needed > alone for v in found)


@pytest.mark.parametrize(("shift", "bold"), [(0.05, ["ddml"]), (0.0005, []), (-0.05, [])])
def test_only_what_a_verdict_calls_better_is_bold(shift: float, bold: list[str]) -> None:
    """Neither the highest mean, from which nothing tells the others, nor a baseline that won."""
    table = build(made(shift), Table(kind="compare", study="s"))
    text = markup.markdown(table)
    lines = [line for line in text.splitlines() if "| **" in line]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == bold
    for written in (text, latex.latex(table)):
        assert ("Bold: better than the baseline row" in written) == bool(bold)


def test_a_saturated_metric_is_called_so_and_none_is_bold() -> None:
    found = alike(1.0)
    table = build(found, Table(kind="compare", study="s"))
    assert isinstance(table, TableData)
    assert not any(row.measured[METRIC].better for row in table.rows)
    assert "**" not in markup.markdown(table)
    assert any(note.startswith("Saturated: MAP@R, validation (%) is 100") for note in table.notes)
    told = verdicts([table])
    assert [v.call for v in told] == ["saturated", "saturated"]
    assert headline(found, told).endswith("0 cannot tell, 2 saturated.")


def test_the_same_value_at_every_seed_is_no_difference() -> None:
    found = alike(0.5)
    table = build(found, Table(kind="compare", study="s"))
    assert isinstance(table, TableData)
    assert any(note.startswith("No difference: MAP@R") for note in table.notes)
    assert not any(note.startswith("Saturated") for note in table.notes)
    assert {v.call for v in verdicts([table])} == {"no difference"}
    assert "exactly the same at every seed" in words.evidence(verdicts([table])[0])


def test_effects_of_exactly_zero_share_no_variation() -> None:
    levels = [{"a": a, "b": b} for a in ("on", "off") for b in ("on", "off")]
    flat = frame("components", levels, lambda at, seed: 0.1 + seed / 7, seeds=3)
    table = build(flat, Table(kind="effects", study="s"))
    fields = [[field.text for field in row] for row in table.rows]  # type: ignore[union-attr]
    assert [row[4] for row in fields] == ["–"] * 3
    assert any("no effect. Every cell has the same value" in note for note in table.notes)
    real = frame("components", levels, lambda at, seed: (at["a"] == "on") / 10 + seed / 7, seeds=3)
    shares = build(real, Table(kind="effects", study="s"))
    assert shares.rows[0][4].text == "100.0"  # type: ignore[index]
    assert not any("no effect" in note for note in shares.notes)


def test_nothing_finished_is_the_verdict_of_an_empty_sweep() -> None:
    found = frame("compare", [{"variant": "plain"}, {"variant": "b"}], lambda at, seed: None)
    tables = build_all(found, type(found.recipe)(tables=(Table(kind="compare", study="s"),)))
    told = verdicts(tables)
    assert headline(found, told) == (
        "Nothing has finished: 0 of 6 trials, so there is no verdict yet."
    )
    assert [v.call for v in told] == ["no result"]
    assert "Measured: nothing yet, no trial has finished." in tables[0].notes
    assert forest(told) is None


def test_a_sweep_without_a_baseline_says_so() -> None:
    found = frame("search", [{"x": 1}, {"x": 2}], lambda at, seed: at["x"] / 10)
    tables = [build(found, Table(kind="search", study="s"))]
    assert "no comparison to judge" in headline(found, verdicts(tables))
    assert words.plain(headline(found, []), []).count("\n") == 1


@pytest.mark.parametrize(
    ("tuning", "study", "text"),
    [
        ({"plain": 16, "ddml": 16}, {}, "tuned with 16 trials"),
        ({"plain": 16, "ddml": 32}, {}, "tuned with 32 trials, the baseline with 16"),
        ({"plain": 0, "ddml": 0}, {}, "not tuned"),
        ({}, {"tuning": "as_published"}, "as published"),
        ({}, {}, "tuning not recorded"),
    ],
)
def test_tuning_is_told(tuning: dict[str, int], study: dict[str, str], text: str) -> None:
    verdict = judge(made(0.05, tuning=tuning, study=study))
    assert verdict.tuned == text and words.evidence(verdict).endswith(f"; {text}")


def test_variants_at_their_own_best_come_first_and_components_have_words() -> None:
    levels = [{"a": a, "b": b} for a in ("on", "off") for b in ("on", "off")]
    found = frame("components", levels, lambda at, seed: (at["a"] == "on") / 10 + seed / 7, seeds=3)
    parts = [Table(kind=kind, study="s", title=kind) for kind in ("components", "compare")]
    told = verdicts([build(found, part) for part in parts])
    assert [v.title for v in told] == ["compare"] * 3 + ["components"] * 3
    assert {v.label for v in told[3:]} == {"a", "b", "a + b"} and told[3].baseline == "none"
    assert "tun" not in words.evidence(told[3]), "its cells share what they stand around"
    text = words.plain(headline(found, told), told)
    assert text.count("\n") == 1 + 2 + 6
    assert text.index("compare: MAP@R") < text.index("components: MAP@R")


def test_the_forest_has_a_line_a_difference_with_its_interval() -> None:
    found = made(0.05)
    drawn = forest([judge(found)])
    assert drawn is not None
    axes = drawn.figure.axes[0]
    zero, interval, point = axes.lines
    told = judge(found).difference
    assert told is not None and told.low is not None and told.high is not None
    assert list(interval.get_xdata()) == [100 * told.low, 100 * told.high]
    assert list(point.get_xdata()) == [100 * told.mean] and point.get_marker() == "^"
    assert list(zero.get_xdata()) == [0, 0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ddml"]


def test_metrics_of_other_units_have_panels_of_their_own() -> None:
    one, other = judge(made(0.05)), judge(made(0.05, metric="test/spectrum"), "test/spectrum")
    drawn = forest([one, other])
    assert drawn is not None and len(drawn.figure.axes) == 2
    assert "points" in drawn.figure.axes[0].get_xlabel()
    assert "points" not in drawn.figure.axes[1].get_xlabel()


def test_the_forest_tells_baselines_of_one_table_apart() -> None:
    """Each row against the plain one of its own loss: two groups, each below its baseline."""
    levels = [{"loss": x, "method": m} for m in ("plain", "ddml") for x in ("pa", "ms")]
    names = [f"{at['method']} {at['loss']}" for at in levels]
    found = frame("compare", levels, lambda at, seed: 0.1 * (at["loss"] == "pa"), names=names)
    recipe = Table(kind="compare", study="s", metrics=(METRIC,), within=("loss",), title="All")
    told = verdicts([build(found, recipe)])
    assert [len(group) for group in groups(told)] == [1, 1]
    drawn = forest(told)
    assert drawn is not None
    titles = [
        text.get_text() for text in drawn.figure.axes[0].texts if "against" in text.get_text()
    ]
    assert titles == [f"All (against {verdict.baseline})" for verdict in told]
    assert len({*titles}) == 2
