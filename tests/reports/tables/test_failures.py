"""Failed runs: they leave no row better by their absence, and no other row without its numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest

from reports.frame import GIVEN_UP, Frame
from reports.pages.markup import build_grid
from reports.pages.table_files import to_csv
from reports.pages.verdict_text import (
    VerdictSection,
    explain_verdicts,
    format_call,
    format_effect,
    format_evidence,
    format_plain_verdict,
)
from reports.recipe import Recipe, Table
from reports.tables.build import build_all, build_table
from reports.tables.model import TableData
from reports.tables.verdict import Verdict, judge_tables
from tests.reports.made import METRIC, divide, frame

NOISE = (0.000, 0.004, -0.003, 0.002, -0.004, 0.003, -0.001, 0.001, -0.002, 0.004)
Lost = Callable[[str, int], bool]


def build(lost: Lost, *, splits: int = 0, failed: str | None = None, shift: float = 0.02) -> Frame:
    """Three rows of ten runs: `better` by `shift`, `worse` by as much; some runs are lost."""
    steps = {"plain": 0.0, "better": shift, "worse": -shift}
    rank = {name: i for i, name in enumerate(steps)}

    def value(at: dict[str, Any], seed: int) -> float | None:
        name = at["variant"]
        if lost(name, seed):
            return None
        return 0.5 + steps[name] + NOISE[(seed + 3 * rank[name]) % 10]

    coords = [{"variant": name} for name in steps]
    made = frame("compare", coords, value, seeds=10, names=list(steps))
    made.document["report"] = {
        "tables": [{"kind": "compare", "study": "s", "metrics": [METRIC]}],
        "primary": METRIC,
        "failed": failed,
    }
    return divide(made, splits) if splits else made


def report(made: Frame) -> tuple[TableData, dict[str, Verdict]]:
    (table, *_) = build_all(made, made.recipe)
    assert isinstance(table, TableData)
    return table, {verdict.cell: verdict for verdict in judge_tables(made, [table])}


def read_csv(table: TableData) -> dict[str, dict[str, str]]:
    return {row["cell"]: row for row in csv.DictReader(io.StringIO(to_csv(table)))}


@pytest.mark.parametrize("splits", [0, 5])
def test_a_row_with_failed_runs_is_open_and_other_rows_are_judged(splits: int) -> None:
    table, verdicts = report(
        build(lambda name, seed: name == "better" and seed in (2, 4), splits=splits)
    )
    assert (verdicts["better"].call, verdicts["worse"].call) == ("open", "worse")
    assert verdicts["better"].failed == "2 of 10 runs failed" and not verdicts["worse"].failed
    gap = verdicts["better"].difference
    assert gap is not None and gap.low is not None and gap.mean == pytest.approx(0.02, abs=3e-3)
    assert verdicts["worse"].n == (splits or 10) and gap.n == (splits or 8)
    text = format_plain_verdict(VerdictSection("", [*verdicts.values()], None))
    assert "2 of 10 runs failed" in text
    numbers = read_csv(table)["better"]
    assert (numbers["verdict"], numbers["runs"], numbers["failed"]) == ("open", "10", "2")
    shown = [row[-1].text for row in build_grid(table).rows]
    assert shown == (["5", "5 (2 failed)", "5"] if splits else ["10", "8 of 10 (2 failed)", "10"])
    assert any(note.startswith("Failed runs: rows with failed runs") for note in table.notes)


def test_failed_runs_of_the_baseline_leave_all_rows_open() -> None:
    _, verdicts = report(build(lambda name, seed: name == "plain" and seed == 1))
    assert {verdict.call for verdict in verdicts.values()} == {"open"}
    assert verdicts["worse"].failed == "1 of 10 runs of the baseline failed"
    _, verdicts = report(build(lambda name, seed: name != "worse" and seed == 1))
    assert (
        verdicts["better"].failed == "1 of 10 runs failed and 1 of 10 runs of the baseline failed"
    )


@pytest.mark.parametrize("splits", [0, 5])
def test_as_the_worst_a_verdict_holds_with_and_without_failed_runs(splits: int) -> None:
    def lose(name: str, seed: int) -> bool:
        return name == "better" and seed in (2, 4)

    without, _ = report(build(lose, splits=splits))
    table, verdicts = report(build(lose, splits=splits, failed="worst", shift=0.05))
    _, few = report(build(lose, splits=splits, failed="worst", shift=0.008))
    row = read_csv(table)["better"]
    assert verdicts["better"].n == int(row["n"]) == (splits or 10)
    assert float(row["mean"]) < 0.55 - 0.005  # two runs have the value of the worst run of `worse`
    assert verdicts["better"].failed == "2 of 10 runs failed: left out or the worst"
    assert [v["worse"].call for v in (verdicts, few)] == ["worse", "worse"]
    assert few["better"].call == "open" and float(read_csv(without)["better"]["mean"]) > 0.515
    high = verdicts["better"].difference.high  # type: ignore[union-attr]
    assert high is not None and high > 0.05  # as without the failed runs
    assert any(note.startswith("Failed runs: a verdict holds both") for note in table.notes)


def test_a_row_whose_runs_all_failed_has_no_verdict_but_open() -> None:
    for failed, call in ((None, "no result"), ("worst", "open")):
        _, verdicts = report(build(lambda name, seed: name == "better", failed=failed))
        assert verdicts["better"].call == call and verdicts["worse"].call == "worse"


@pytest.mark.parametrize(
    ("status", "reason", "is_failure"),
    [
        ("failed", "not finite", True),
        ("interrupted", f"the machine: killed ({GIVEN_UP} 4 attempts)", True),
        ("interrupted", "its driver stopped", False),
        ("partial", "paused by its scheduler after epoch 3", False),
        ("running", "", False),
        ("missing", "planned, no run in the store", False),
    ],
)
def test_only_what_failed_or_was_given_up_counts(
    status: str, reason: str, is_failure: bool
) -> None:
    made = build(lambda name, seed: name == "better" and seed == 2)
    lost = made.cells["status"] == "failed"
    made.cells.loc[lost, ["status", "reason"]] = [status, reason]
    _, verdicts = report(made)
    assert (verdicts["better"].call == "open") == is_failure == bool(verdicts["better"].failed)


@pytest.mark.parametrize(("failed", "call"), [(None, "open"), ("worst", "better")])
def test_terms_of_components_with_failed_runs(failed: str | None, call: str) -> None:
    """Two factors: `a` adds much, and one run of the best cell has failed."""

    def value(at: dict[str, Any], seed: int) -> float | None:
        if at == {"a": "on", "b": "on"} and seed == 3:
            return None
        return 0.5 + 0.1 * (at["a"] == "on") + NOISE[(seed + 3 * (at["b"] == "on")) % 10]

    coords = [{"a": a, "b": b} for a in ("off", "on") for b in ("off", "on")]
    made = frame("components", coords, value, seeds=8)
    recipe = Table(kind="components", study="s", metrics=(METRIC,), alone=True)
    made.document["report"] = Recipe(tables=(recipe,), primary=METRIC, failed=failed).model_dump()  # type: ignore[arg-type]
    _, verdicts = report(made)
    assert (verdicts["a"].call, verdicts["b"].call) == (call, "open")
    assert verdicts["a"].failed == "1 of 32 runs failed"


@pytest.mark.parametrize("splits", [0, 5])
@pytest.mark.parametrize("failed", [None, "worst"])
def test_runs_that_are_left_give_a_row_no_chances(splits: int, failed: str | None) -> None:
    lost = build(lambda name, seed: name == "better" and seed < 2, splits=splits, failed=failed)
    table, verdicts = report(lost)
    assert verdicts["better"].chances is None and verdicts["worse"].chances is not None
    assert "chances" not in format_evidence(verdicts["better"])
    numbers = read_csv(table)
    for column in ("chance_worse", "chance_within", "chance_better"):
        assert numbers["better"][column] == "" != numbers["worse"][column]


def test_an_open_row_whose_interval_leaves_out_0_says_of_which_runs_this_is() -> None:
    _, verdicts = report(build(lambda name, seed: name == "better" and seed in (2, 4)))
    verdict = verdicts["better"]
    assert verdict.difference is not None and (verdict.difference.low or 0) > 0
    assert "higher among finished runs (" in format_effect(verdict)
    assert format_call(verdict) == "undecided (2 of 10 runs failed)"
    assert "among finished runs" not in format_effect(verdicts["worse"])
    assert "A comparison with failed runs is undecided" in explain_verdicts([*verdicts.values()])
    assert "failed" not in explain_verdicts([verdicts["worse"]])


@pytest.mark.parametrize("failed", [None, "worst"])
def test_components_with_failed_runs_have_no_chances(failed: str | None) -> None:
    coords = [{"a": a, "b": b} for a in ("off", "on") for b in ("off", "on")]

    def value(at: dict[str, Any], seed: int) -> float | None:
        if at == {"a": "on", "b": "on"} and seed == 3:
            return None
        shift = 0.02 * (at["a"] == "on") + 0.001 * (at["b"] == "on")
        return 0.5 + shift + NOISE[(seed + 3 * (at["a"] == "on") + 5 * (at["b"] == "on")) % 10]

    made = frame("components", coords, value, seeds=10)
    tables = [{"kind": "components", "study": "s", "metrics": [METRIC], "alone": True}]
    made.document["report"] = {"tables": tables, "primary": METRIC, "failed": failed}
    (table,) = build_all(made, made.recipe)
    terms = judge_tables(made, [table])
    assert len(terms) == 3 and all(term.is_term for term in terms)
    assert {term.chances for term in terms} == {None}
    assert failed or {term.call for term in terms} == {"open"}


@pytest.mark.parametrize("lost", [0, 2])
def test_a_table_of_effects_says_how_many_runs_failed(lost: int) -> None:
    coords = [{"a": a, "b": b} for a in ("off", "on") for b in ("off", "on")]
    made = frame("components", coords, lambda _, seed: None if seed < lost else NOISE[seed])
    effects = build_table(made, Table(kind="effects", study="s", metrics=(METRIC,)))
    notes = [note for note in effects.notes if note.startswith("Failed runs")]
    assert len(notes) == bool(lost) and all("8 of 12 runs failed" in note for note in notes)
