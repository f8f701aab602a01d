"""A comparison over classes and seeds: its intervals, its words, and what it falls back to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from ablate.ledger.ledger import Ledger
from ablate.tracking.store import Store
from ablate.tracking.views import compile_report
from reports.frame import Frame
from reports.pages import verdict_text as words
from reports.recipe import Table
from reports.stats.wider_claims import compute_half_width
from reports.tables.build import build_table
from reports.tables.model import TableData
from reports.tables.verdict import Verdict, judge_tables
from tests.reports.conftest import REPORT
from tests.reports.made import METRIC, Row, assemble, frame

ROWS, CLASSES, SEEDS = ("plain", "ddml", "nir"), 30, 4
QUERIES = np.arange(CLASSES) % 5 + 3.0
QUERIES[7] = 0  # no query of this class counts
rng = np.random.default_rng(5)
OF_CLASS = {"plain": 0.0, "ddml": 0.05 + 0.2 * rng.standard_normal(CLASSES), "nir": 0.3}
VALUES = {
    (row, seed): 0.4 + OF_CLASS[row] + 0.01 * rng.standard_normal(CLASSES)
    for row in ROWS
    for seed in range(SEEDS)
}


def measure(row: str, seed: int) -> float:
    return float(np.average(VALUES[row, seed], weights=QUERIES))


def record(row: str, seed: int, **changes: Any) -> dict[str, Any]:
    pairs = [[mean, count] for mean, count in zip(VALUES[row, seed], QUERIES, strict=True)]
    return {"digest": "0" * 16, "metrics": {"map_at_r": pairs}} | changes


def build(records: dict[str, dict[str, Any]] | None) -> Frame:
    coords = [{"variant": row} for row in ROWS]
    made = frame("compare", coords, lambda at, seed: measure(at["variant"], seed), seeds=SEEDS)
    if records is not None:
        made.read_classes = lambda trial, split: records.get(trial) if split == "val" else None
    return made


def list_records() -> dict[str, dict[str, Any]]:
    return {f"t{i}-{s}": record(row, s) for i, row in enumerate(ROWS) for s in range(SEEDS)}


def judge(made: Frame) -> tuple[TableData, dict[str, Verdict]]:
    recipe = Table(kind="compare", study="s", metrics=(METRIC,), blocks="classes")
    table = build_table(made, recipe)
    assert isinstance(table, TableData)
    verdicts = judge_tables(made, [table])
    return table, {verdict.label: verdict for verdict in verdicts}


def test_the_interval_holds_for_classes_and_its_middle_is_the_tables_difference() -> None:
    _, verdicts = judge(build(list_records()))
    for row in ("ddml", "nir"):
        gaps = np.array([VALUES[row, s] - VALUES["plain", s] for s in range(SEEDS)]).T
        half = compute_half_width(gaps[QUERIES > 0], QUERIES[QUERIES > 0], 0.95**0.5)
        difference = verdicts[row].difference
        assert difference is not None and difference.low is not None
        assert difference.mean == pytest.approx(
            np.mean([measure(row, s) - measure("plain", s) for s in range(SEEDS)])
        )
        assert difference.mean - difference.low == pytest.approx(half)
    # the difference of ddml is that of some classes, which seeds alone cannot know
    assert [v.call for v in verdicts.values()] == ["open", "better"]
    assert [v.classes for v in verdicts.values()] == [CLASSES - 1] * 2
    _, over_seeds = judge(build(None))
    assert [v.call for v in over_seeds.values()] == ["better", "better"]


def test_notes_and_verdicts_say_what_the_claims_are_about() -> None:
    table, verdicts = judge(build(list_records()))
    text = words.format_plain_verdict(words.VerdictSection("", [*verdicts.values()], None))
    assert "Holds for further classes like these of the data set, given this training set" in text
    assert "further seeds on this split" not in text
    assert "4 seeds × 29 classes)" in words.format_effect(verdicts["ddml"])
    notes = " ".join(table.notes)
    assert "hold for further classes like these 29" in notes and "number of queries" in notes


def drop_one(records: dict[str, dict[str, Any]]) -> None:
    del records["t1-2"]


def drop_the_metric(records: dict[str, dict[str, Any]]) -> None:
    records["t2-0"]["metrics"] = {"recall_at_1": [[0.5, 3]]}


def take_other_classes(records: dict[str, dict[str, Any]]) -> None:
    records["t0-3"]["digest"] = "1" * 16


def take_other_images(records: dict[str, dict[str, Any]]) -> None:
    records["t1-1"]["metrics"]["map_at_r"][0][1] += 1


@pytest.mark.parametrize(
    "change", [None, drop_one, drop_the_metric, take_other_classes, take_other_images]
)
def test_without_values_of_all_runs_it_is_judged_over_seeds_and_says_so(change: Any) -> None:
    records = list_records()
    if change is not None:
        change(records)
    table, verdicts = judge(build(None if change is None else records))
    _, over_seeds = judge(build(None))
    assert {k: v.difference for k, v in verdicts.items()} == {
        k: v.difference for k, v in over_seeds.items()
    }
    assert "further seeds on these classes only" in " ".join(table.notes)
    assert all(v.classes == 0 for v in verdicts.values())
    text = words.format_plain_verdict(words.VerdictSection("", [*verdicts.values()], None))
    assert "further seeds on this split" in text


def test_a_row_with_shifted_seeds_is_paired_in_their_order() -> None:
    rows = [
        Row("s", row, {"variant": row}, i, seed + 10 * i, measure(row, seed), f"{i}-{seed}")
        for i, row in enumerate(ROWS)
        for seed in range(SEEDS)
    ]
    made = assemble(rows, {"s": {"design": "compare"}})
    records = list_records()
    made.read_classes = lambda trial, split: records[trial]
    _, shifted = judge(made)
    _, verdicts = judge(build(records))
    assert [v.difference for v in shifted.values()] == [v.difference for v in verdicts.values()]


def test_over_searches_the_interval_has_both() -> None:
    studies = ("s", "s_search2", "s_search3")
    rows = [
        Row(
            study,
            row,
            {"variant": row},
            i,
            seed,
            measure(row, seed) + 0.01 * k * i,
            f"{k}{i}{seed}",
        )
        for k, study in enumerate(studies)
        for i, row in enumerate(ROWS)
        for seed in range(SEEDS)
    ]
    made = assemble(
        rows, {key: {"design": "compare"} for key in studies}, searches={"s": list(studies[1:])}
    )
    records = {
        f"t{k}{i}{s}": record(r, s) for k in range(3) for i, r in enumerate(ROWS) for s in range(4)
    }
    made.read_classes = lambda trial, split: records[trial]
    _, verdicts = judge(made)
    _, over_one = judge(build(list_records()))
    for name, verdict in verdicts.items():
        assert verdict.classes == CLASSES - 1 and verdict.searches == 3
        gap, single = verdict.difference, over_one[name].difference
        assert gap and single and gap.low and gap.high and single.low and single.high
        assert gap.high - gap.low > single.high - single.low


def test_only_comparisons_have_blocks() -> None:
    with pytest.raises(ValidationError, match="kind compare, not search"):
        Table(kind="search", study="s", blocks="classes")


@pytest.mark.parametrize("has_ledger", [True, False])
def test_a_report_reads_values_by_class_from_the_ledger(
    sweep: Any, has_ledger: bool, tmp_path: Path
) -> None:
    table = {**REPORT["tables"][1], "published": None, "blocks": "classes"}
    sweep.finish(sweep.plan(report={"tables": [table]}, studies=("tuned",)))
    with Ledger(sweep.ledger_path) as ledger:
        for cell in ledger.list_cells(sweep.sweep_id):
            value = ledger.get_evaluations(cell["trial_id"])["test"]["map_at_r"]
            pairs = [[value + shift, 2] for shift in (0.01, -0.01)]
            classes = {"digest": "0" * 16, "metrics": {"map_at_r": pairs}}
            final = {"evaluations": {"test": {}}, "evaluator": "retrieval-1"}
            final["classes"] = {"test": classes}
            ledger.record_final(cell["trial_id"], final, trained=False)
    sweep.track()
    if not has_ledger:
        sweep.ledger_path.rename(tmp_path / "moved.sqlite")
    _, text, _ = compile_report(Store(sweep.folder), sweep.sweep_id)
    assert ("further classes like these 2," in text) == has_ledger
    seeds_only = "Recall@1" if has_ledger else "MAP@R, Recall@1"
    expected = f"intervals of {seeds_only} hold for further seeds on these classes only"
    assert expected in " ".join(text.split())


def test_an_open_verdict_says_whether_seeds_or_classes_are_short() -> None:
    """The classes differ more than the seeds, so that more seeds would not help."""
    _, verdicts = judge(build(list_records()))
    assert verdicts["ddml"].advice.startswith("more seeds would not help (at best ±")
    assert verdicts["ddml"].advice in words.format_evidence(verdicts["ddml"])


@pytest.mark.parametrize("lost", ROWS)
def test_a_row_without_results_leaves_the_other_rows_their_classes(lost: str) -> None:
    """The page of a running sweep has rows whose trials have not ended."""
    records = {
        key: value for key, value in list_records().items() if key[1] != str(ROWS.index(lost))
    }
    made = frame(
        "compare",
        [{"variant": row} for row in ROWS],
        lambda at, seed: None if at["variant"] == lost else measure(at["variant"], seed),
        seeds=SEEDS,
    )
    made.read_classes = lambda trial, split: records.get(trial)
    _, verdicts = judge(made)
    for name, verdict in verdicts.items():
        is_measured = lost not in (name, "plain")
        assert (verdict.call == "no result") is not is_measured
        assert (verdict.difference is not None) is is_measured
        assert verdict.classes == CLASSES - 1 or not is_measured


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("asked", [0, 1])
def test_classes_without_queries_say_nothing_of_further_classes(asked: int) -> None:
    """Nothing is known of how differences vary over classes, if at most one has queries."""
    records = list_records()
    for each in records.values():
        for i, pair in enumerate(each["metrics"]["map_at_r"]):
            pair[1] = 5.0 if i < asked else 0.0
    _, verdicts = judge(build(records))
    for verdict in verdicts.values():
        assert verdict.classes == asked
        assert verdict.difference is not None and (verdict.difference.low is None) is bool(asked)
        assert not asked or (verdict.call, verdict.chances) == ("open", None)
