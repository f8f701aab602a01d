"""What each comparison is called, and what is said where nothing can be told."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from reports.figures.forest import draw_forest_plot
from reports.frame import Frame
from reports.pages import markup, table_files
from reports.pages import verdict_text as words
from reports.pages.table_files import to_csv
from reports.recipe import Recipe, Table
from reports.stats.paired import Difference
from reports.tables.build import build_all, build_table
from reports.tables.model import AnyTable, TableData
from reports.tables.questions import build_questions, format_difference
from reports.tables.verdict import PrintedGain, Verdict, judge_tables, summarize_verdicts
from tests.reports.made import METRIC, divide, frame

# Seed by seed: the scatter of the differences, and that of the seeds, which pairs away.
NOISE = (0.004, -0.006, 0.001, 0.005, -0.004, 0.002, -0.003, 0.006)
TABLE = {"kind": "compare", "study": "s", "metrics": [METRIC]}
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
    return judge_tables(found, [compared(found, metric)])[0]


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
        (0.0005, METRIC, "open"),
    ],
)
def test_calls_follow_the_interval_and_the_metric(shift: float, metric: str, call: str) -> None:
    made_frame = made(shift, metric=metric)
    verdict = judge(made_frame, metric)
    assert verdict.call == call and verdict.n == 8
    assert verdict.baseline == "plain" and verdict.label == "ddml"
    gap = verdict.difference
    assert gap is not None and gap.low is not None and gap.high is not None
    assert (gap.low <= 0 <= gap.high) == (call == "open")
    # neither the highest mean, from which nothing tells the others, nor a baseline that won
    table = compared(made_frame, metric)
    text = markup.format_markdown_table(table)
    bold = [line.split(" | ")[0] for line in text.splitlines() if "| **" in line]
    assert bold == (["| ddml"] if call == "better" else [])
    for written in (text, table_files.format_latex(table)):
        assert ("Bold: better than the baseline row" in written) == (call == "better")


@pytest.mark.parametrize("kind", ["compare", "components"])
def test_calls_follow_the_direction_that_a_study_declares(kind: str) -> None:
    """On every split, though more of the metric is better elsewhere."""
    metric = "test/density"
    study = {"objectives": [{"metric": "val/density", "direction": "minimize"}]}

    def value(at: dict[str, Any], seed: int) -> float:
        return 0.1 * (at["a"] == "on") + 0.02 * seed + NOISE[(seed + 3 * (at["b"] == "on")) % 8]

    found = frame(kind, LEVELS, value, seeds=6, metric=metric, study=study)
    table = build_table(found, Table(kind=kind, study="s", metrics=(metric,), baseline=LEVELS[-1]))
    calls = {verdict.cell: verdict.call for verdict in judge_tables(found, [table])}
    assert calls["a" if kind == "components" else "a=on,b=off"] == "worse"
    criterion = "π_density, test (lower is better) decides"
    assert any(note.startswith(criterion) for note in table.notes)
    chances = [row.measured[metric].compared for row in table.rows if row.cell == "a=on,b=off"]
    assert chances[0] is not None and chances[0].improvement is not None
    assert chances[0].improvement.probability < 0.5


def test_no_difference_is_a_verdict_where_the_interval_lies_within_the_smallest_effect() -> None:
    near, strict = made(0.0002, scatter=0.2), made(0.0002, scatter=0.2)
    assert judge(near).call == "no difference"
    assert words.format_call(judge(near)) == "no difference above 0.3"
    strict.document["report"] = {"tables": [TABLE], "smallest": {"map_at_r": 0.01}}
    assert judge(strict).call == "open"
    small = judge(made(0.002, scatter=0.1))
    assert small.difference and small.difference.high
    most = f"{100 * small.difference.high:.2f}"
    assert words.format_call(small) == f"negligible (better by at most {most})"
    (question,) = build_questions([small])
    assert words.format_tag(question.parts[0].answers[0], is_reply=True) == "negligible"


def divided(splits: int, seeds: int, *, split_sd: float, seed_sd: float) -> Verdict:
    """Judge three rows over splits, with an interaction split × method and training noise."""
    rng, names = np.random.default_rng(0), ["plain", "ddml", "nir"]
    of_split = split_sd * rng.normal(size=(3, splits))
    of_seed = seed_sd * rng.normal(size=(3, splits * seeds))

    def value(at: dict[str, Any], seed: int) -> float:
        row = names.index(at["variant"])
        return 0.5 + float(of_split[row, seed % splits] + of_seed[row, seed])

    variants = [{"variant": name} for name in names]
    found = divide(frame("compare", variants, value, seeds=splits * seeds, names=names), splits)
    return judge(plan_looks(found))


def plan_looks(found: Frame, looks: int | None = 2) -> Frame:
    """Plan a further look, whose level is that of this one."""
    found.document["report"] = {"tables": [TABLE], "looks": looks}
    return found


def test_advice_has_the_level_of_the_look_at_the_further_seeds() -> None:
    """Whoever adds seeds looks again, and an unplanned look has long intervals."""
    texts = [judge(plan_looks(made(0.0015), looks)).advice for looks in (2, None)]
    assert "level" not in texts[0] and "a further look, 99.75 %" in texts[1]
    found = [re.match(r"(\d+) seeds .+? ±(\S+)", text) for text in texts]
    planned, unplanned = ((int(each[1]), float(each[2])) for each in found if each)
    assert planned < unplanned or planned[1] < unplanned[1]


def test_an_open_verdict_says_what_more_seeds_would_give_with_a_range() -> None:
    verdict = judge(plan_looks(made(0.0015)))
    assert verdict.call == "open" and verdict.advice in words.format_evidence(verdict)
    number = re.fullmatch(r"(\d+) seeds .+ to ±(.+) \(±(.+) to ±(.+)\)", verdict.advice)
    assert number is not None and 8 < int(number[1]) <= 32
    about, low, high = map(float, number.groups()[1:])
    assert 0 < low < about <= 0.24 < high
    assert "1 seed, without an interval" in words.format_effect(judge(made(0.05, seeds=1)))
    far = judge(plan_looks(made(0.0015, scatter=9.0))).advice
    assert far.startswith("32 seeds") and far.endswith("and ±0.24 takes more seeds")


def test_a_verdict_over_splits_says_whether_seeds_or_classes_are_short() -> None:
    by_seeds = divided(5, 4, split_sd=0.0, seed_sd=0.0035).advice
    assert re.match(r"(\d+) seeds a split .+ ±.+; further classes are not needed", by_seeds)
    by_classes = divided(5, 4, split_sd=0.01, seed_sd=0.001).advice
    assert by_classes.startswith("more seeds would not help (at best ±")
    assert by_classes.endswith("only further classes would")
    assert "cannot tell" in divided(5, 1, split_sd=0.01, seed_sd=0.001).advice


def test_a_component_says_what_more_seeds_would_give() -> None:
    def value(at: dict[str, Any], seed: int) -> float:
        return 0.5 + NOISE[(seed + 3 * (at["a"] == "on") + 5 * (at["b"] == "on")) % 8]

    found = frame("components", LEVELS, value, seeds=3)
    table = build_table(found, Table(kind="components", study="s", metrics=(METRIC,)))
    advice = [v.advice for v in judge_tables(found, [table]) if v.call == "open"]
    assert advice and all(re.match(r"\d+ seeds .+ ±", text) for text in advice)


def test_advice_names_the_scatter_of_searches_and_none_for_short_intervals() -> None:
    assert judge(made(0.0002, scatter=0.2)).advice == ""
    found = made(0.0015)
    found.document["report"] = {"tables": [TABLE], "smallest": {"map_at_r": 50.0}}
    assert judge(found).advice == ""


def test_a_verdict_names_the_row_whose_scatter_lengthens_its_interval() -> None:
    scatters = {"plain": 0.0, "ddml": 0.1, "nir": 0.1, "idml": 5.0}

    def value(at: dict[str, Any], seed: int) -> float:
        name = at["variant"]
        return 0.5 + scatters[name] * NOISE[(seed + len(name)) % 8] * (1 + 0.1 * (name == "nir"))

    variants = [{"variant": name} for name in scatters]

    def judge_seeds(seeds: int) -> dict[str, Verdict]:
        found = frame("compare", variants, value, seeds=seeds, names=[*scatters])
        return {each.cell: each for each in judge_tables(found, [compared(found)])}

    few = judge_seeds(5)
    assert few["ddml"].own is not None and few["ddml"].lengthened_by == "idml"
    text = words.format_evidence(few["ddml"])
    assert "the scatter of idml lengthens" in text
    assert f"±{100 * few['ddml'].own:.2f} alone" in text
    assert few["idml"].own is None and "lengthens" not in words.format_evidence(few["idml"])
    # from eight seeds on each row has its own
    assert {each.own for each in judge_seeds(8).values()} == {None}


def test_copies_are_no_comparisons() -> None:
    """A row that equals its baseline, and one that equals another row: one comparison is left."""

    def value(at: dict[str, Any], seed: int) -> float:
        return 0.5 + (0.004 if at["variant"] in ("ddml", "nir") else 0) + NOISE[seed]

    names = ("plain", "ddml", "idml", "nir")
    variants = [{"variant": name} for name in names]
    twins = frame("compare", variants, value, seeds=8, names=[*names])
    calls = {verdict.cell: verdict for verdict in judge_tables(twins, [compared(twins)])}
    assert [calls[name].call for name in names[1:]] == ["better", "same", "same"]
    assert words.format_call(calls["idml"]) == "same as plain"
    assert words.format_call(calls["nir"]) == "same as ddml"
    assert {verdict.family for verdict in calls.values()} == {1}
    assert summarize_verdicts(twins, [*calls.values()]) == ""
    (question,) = build_questions([*calls.values()])
    assert question.text == "Which of these 3 beat plain here?"
    assert words.count_tags(question.parts[0]) == "1 better, 2 same"


@pytest.mark.parametrize(
    ("metric", "images", "seeds", "call"),
    [
        ("test/map_at_r", 2100, 6, "same"),
        ("test/map_at_r", 210, 6, "better"),  # two thirds of δ, which no training of copies gives
        ("test/concentration", 2100, 6, "better"),  # no mean over images
        ("test/nmi", 2100, 6, "better"),
        (
            "test/map_at_r",
            2100,
            4,
            "better",
        ),  # eight counts can share a factor of N
    ],
)
def test_less_than_an_image_and_a_tenth_of_delta_is_no_difference_of_a_mean_over_images(
    metric: str, images: int, seeds: int, call: str
) -> None:
    """A row with 0.4 of N images more than the other, at all seeds; its difference is shown."""

    def value(at: dict[str, Any], seed: int) -> float:
        extra = 0.4 + 0.01 * NOISE[seed] if at["variant"] == "ddml" else 0.0
        return 0.5 + 0.02 * seed + extra / images

    variants = [{"variant": name} for name in ("plain", "ddml")]
    found = frame("compare", variants, value, seeds=seeds, names=["plain", "ddml"], metric=metric)
    counts = [images // 2 + place for place in range(len(found.trials))]
    trials = found.trials.assign(**{"test/recall_at_1": [count / images for count in counts]})
    found = Frame(None, found.parents, trials)
    verdict = judge(found, metric)
    assert verdict.call == call
    assert verdict.difference and verdict.difference.mean == pytest.approx(0.4 / images, rel=0.05)


def test_controls_are_counted_in_the_first_line() -> None:
    gains = {
        "plain": 0,
        "known: a": -0.05,
        "known: b": 0,
        "null: c": 0.05,
        "null: d": 0,
        "known": 0,
    }

    def value(at: dict[str, Any], seed: int) -> float:
        draw = NOISE[(seed + len(at["variant"])) % 8] / 10
        return 0.5 + gains[at["variant"]] + draw

    variants = [{"variant": name} for name in gains]
    found = frame("compare", variants, value, seeds=8, names=[*gains])
    assert summarize_verdicts(found, judge_tables(found, [compared(found)])) == (
        "Controls: 1 of 2 known effects found, 1 of 2 nulls called different. "
        "Not as they should be: known: b, null: c."
    )


def settings(regime: str) -> Any:
    return lambda coords: {"backbone.mode": regime, "data.name": "typefaces"}


def test_one_question_has_an_answer_in_each_setting_and_says_what_it_holds_for() -> None:
    """A row that tuning switched off, and its best other configuration, are one answer."""

    def value(at: dict[str, Any], seed: int) -> float:
        on = at["variant"] == "ddml, not neutral"
        return 0.5 + 0.02 * seed + on * (0.1 * NOISE[seed] - 0.006)

    names = ["plain", "ddml", "ddml, not neutral"]
    variants = [{"variant": name} for name in names]
    heads = frame("compare", variants, value, seeds=8, names=names, params=settings("frozen"))
    network = made(0.0015, params=settings("finetune"))
    verdicts = [*judge_tables(heads, [compared(heads)]), replace(judge(network), key="network")]
    (question,) = build_questions(verdicts)
    lines = words.format_verdict_section(words.VerdictSection("", verdicts, None))
    first, second = (line for line in lines if line.startswith("- "))
    assert question.text == "Does ddml beat plain here?"
    assert first.startswith("- Frozen backbone: **no**; tuning preferred ddml switched off, and")
    assert "points lower (" in first and "; 8 seeds)" in first
    assert second.startswith("- Whole network: **undecided**; between ")
    assert verdicts[-1].chances and f"{100 * verdicts[-1].chances[2]:.0f} % better by" in second
    assert not any("neutral" in line for line in lines)
    scope = words.format_scope(question)
    assert scope.startswith("Holds for further seeds on this split of the data set typefaces")
    splits = [replace(verdict, unit="split") for verdict in verdicts[:-1]]
    assert "Whole network: Holds for further seeds" in words.format_scope(
        build_questions([*splits, verdicts[-1]])[0]
    )


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        ({"is_same_data": False}, "the paper reports +9.0 on CUB-200-2011"),
        ({"is_same_data": True}, "the paper reports +9.0 on CUB-200-2011, outside this interval"),
    ],
)
def test_a_printed_gain_is_judged_on_its_own_data_and_metric_alone(
    gain: dict[str, Any], expected: str
) -> None:
    verdict = judge(made(0.05))
    recall = Difference(-0.001, -0.015, 0.014, 8, "holm_t")
    printed = PrintedGain("test/recall_at_1", 0.09, recall, "CUB-200-2011", **gain)
    text = words.format_evidence(replace(verdict, printed=printed))
    assert f"Recall@1 here: −0.1 [−1.5, +1.4]; {expected}" in f"{text};"
    assert text.endswith(expected) or f"{expected};" in text


def test_a_large_loss_is_worse_with_three_seeds() -> None:
    """−6.32 [−7.30, −5.34]: what the earlier rule could not tell at any number of rows."""
    losses = (-0.0592, -0.0636, -0.0668)

    def value(at: dict[str, Any], seed: int) -> float:
        rows = {"plain": 0.0, "ddml": losses[seed % 3], "nir": 0.5 * NOISE[seed]}
        return 0.5 + 0.001 * seed + rows[at["variant"]]

    names = ["plain", "ddml", "nir"]
    variants = [{"variant": name} for name in names]
    found = frame("compare", variants, value, names=names, metric="test/recall_at_1")
    verdict = judge(found, "test/recall_at_1")
    assert verdict.difference is not None and verdict.difference.n == 3
    assert verdict.difference.mean == pytest.approx(-0.0632) and verdict.call == "worse"


def assert_no_verdict(found: Frame, table: AnyTable) -> None:
    """Neither in bold type nor in a file; the headline does not deny the comparison."""
    assert judge_tables(found, [table]) == []
    assert "**" not in markup.format_markdown_table(table)
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [row["verdict"] for row in rows] == ["", ""] and rows[1]["delta_low"]
    headline = summarize_verdicts(found, [], [table])
    assert headline.startswith("Rows beside a baseline have no verdict: they were tuned")
    assert summarize_verdicts(found, [], []).startswith("No table sets cells beside a baseline")


def test_rows_that_were_tuned_on_what_splits_test_have_no_verdict() -> None:
    study = {"splits": 5, "splits_seen": "allow"}
    seen = made(0.05, study=study)
    table = compared(seen)
    assert_no_verdict(seen, table)
    assert any("Tuned on classes that some splits test" in note for note in table.notes)


def test_rows_tuned_in_another_regime_are_named_so_and_have_no_verdict() -> None:
    heads = made(0.05)
    heads.document.setdefault("spec", {})["other_regimes"] = {"s": {"ddml": "rates from heads"}}
    table = compared(heads)
    assert [row.labels[0] for row in table.rows] == ["plain", "ddml (rates from heads)"]
    assert_no_verdict(heads, table)
    heads.document["spec"]["other_regimes"] = {"s": {"plain": "rates from heads"}}
    assert_no_verdict(heads, compared(heads))


def test_the_primary_metric_decides_and_stands_first() -> None:
    recipe = Table(kind="compare", study="s", metrics=(METRIC, "test/recall_at_1"))

    def judge_by(report: dict[str, Any]) -> tuple[AnyTable, Verdict]:
        both = made(0.05)
        trials = both.trials.assign(**{"test/recall_at_1": 0.5 - both.trials[METRIC] / 10})
        both.document["report"] = report
        both = Frame(None, both.parents, trials)
        table = build_table(both, recipe)
        (verdict,) = judge_tables(both, [table])
        return table, verdict

    _, by_default = judge_by({})
    both = {**TABLE, "metrics": [METRIC, "test/recall_at_1"]}
    table, named = judge_by({"tables": [both], "primary": "test/recall_at_1"})
    assert (by_default.metric, by_default.call) == (METRIC, "better")
    assert (named.metric, named.call) == ("test/recall_at_1", "worse")
    assert isinstance(table, TableData) and table.metrics[0] == "test/recall_at_1"


def test_nothing_finished_is_the_verdict_of_an_empty_sweep() -> None:
    found = frame("compare", [{"variant": "plain"}, {"variant": "b"}], lambda at, seed: None)
    tables = build_all(found, Recipe(tables=(Table(kind="compare", study="s"),)))
    calls = judge_tables(found, tables)
    assert summarize_verdicts(found, calls).startswith("Nothing has finished: 0 of 6 trials")
    assert [verdict.call for verdict in calls] == ["no result"] and draw_forest_plot(calls) is None
    assert "Measured: nothing yet, no trial has finished." in tables[0].notes


def test_components_are_judged_by_terms_after_variants_at_their_own_best() -> None:
    def value(at: dict[str, Any], seed: int) -> float:
        return 0.1 * (at["a"] == "on") + seed / 7 + 0.01 * NOISE[seed + 2 * (at["b"] == "on")]

    parts = [Table(kind=kind, study="s", title=kind) for kind in ("components", "compare")]
    noisy = frame("components", LEVELS, value, seeds=3)
    calls = judge_tables(noisy, [build_table(noisy, part) for part in parts])
    assert [v.title for v in calls] == ["compare"] * 3 + ["components"] * 3
    assert {v.label: v.call for v in calls[3:]} == {
        "a, main effect": "better",
        "b, main effect": "no difference",
        "all on − all off": "better",
    }
    assert all(v.is_term and v.family == 3 for v in calls[3:])
    section = words.VerdictSection(summarize_verdicts(noisy, calls), calls, None)
    text = words.format_plain_verdict(section)
    assert text.index("Which of these 3 beat") < text.index("Which terms matter?")
    # without an error of its own a table's rows are judged one by one
    exact = components(0.1)
    rows = judge_tables(exact, [build_table(exact, parts[0])])
    assert {v.label for v in rows} == {"a", "b", "a + b"} and not any(v.is_term for v in rows)


def test_the_forest_has_a_line_a_difference_and_a_panel_a_unit() -> None:
    one, other = judge(made(0.05)), judge(made(0.05, metric="test/spectrum"), "test/spectrum")
    assert one.difference is not None
    gain = PrintedGain(METRIC, 0.02, one.difference, "CUB-200-2011", is_same_data=True)
    open_one = replace(one, key="other", call="open", rival="another", printed=gain)
    drawn = draw_forest_plot([one, other, open_one])
    assert drawn is not None
    first, second, third = drawn.figure.axes
    zero, interval, point = first.lines
    low, high = one.difference.low, one.difference.high
    assert low is not None and high is not None
    assert list(interval.get_xdata()) == [100 * low, 100 * high]
    assert list(point.get_xdata()) == [100 * one.difference.mean] and point.get_marker() == "^"
    assert list(zero.get_xdata()) == [0, 0]
    *_, hollow, tick = third.lines
    assert point.get_markerfacecolor() != "white" == hollow.get_markerfacecolor()
    assert list(tick.get_xdata()) == [2.0] and tick.get_marker() == "|"
    texts = [text.get_text() for text in first.texts]
    assert "Does ddml beat plain here?" in texts
    assert f"{format_difference(one)}\nbetter" in texts
    assert "points" in first.get_xlabel() and "points" not in second.get_xlabel()


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ({"primary": "test/nmi"}, "no table shows the primary metric test/nmi"),
        ({"smallest": {"nmi": 0.5}}, "`smallest` names nmi, which no table has"),
    ],
)
def test_what_would_be_ignored_is_refused(report: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Recipe.model_validate({"tables": [TABLE], **report})
