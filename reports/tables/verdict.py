"""What each comparison of a report says: better, worse, or that it cannot be told.

The rule is the tables' own: a difference is told where its two-sided sign-flip permutation p,
Holm-corrected over the comparisons of its table, is at most 0.05. The interval beside it is
of that comparison alone and may leave out zero where the verdict is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from reports.frame import Frame
from reports.stats.paired import (
    LEVEL,
    Difference,
    can_reach_verdict,
    count_pairs_needed,
    pairs_for_power,
)
from reports.tables.labels import is_lower_better, is_share
from reports.tables.model import AnyTable, MeasuredMetric, TableData, TableRow
from reports.tables.notes import count_tests

Call = Literal["better", "worse", "cannot tell", "no difference", "saturated", "no result"]
CALLS: tuple[Call, ...] = get_args(Call)
ON = "✓"


@dataclass(frozen=True)
class Verdict:
    """One comparison: a row of a table beside its baseline row, by the table's first metric.

    title, key: of the table; cell: of the row; label, baseline: the two rows as a reader knows
    them. difference: paired, on the scale of the runs. n: seeds that have both rows. p: corrected.
    needed: seeds at which the difference would be told with a chance of 80 %, were it and the
    seeds' scatter as they were measured; None where it is told, or where no number follows.
    possible: whether n seeds can give any verdict, whatever their values. tuned: what went into the
    settings of the row, in words.
    """

    title: str
    key: str
    study: str
    metric: str
    digits: int
    cell: str
    label: str
    baseline: str
    call: Call
    difference: Difference | None
    n: int
    p: float | None
    needed: int | None
    possible: bool
    tuned: str


def judge_tables(tables: Sequence[AnyTable]) -> list[Verdict]:
    """Return one for each compared row; variants at their best first, then components, in order."""
    compared = [table for table in tables if isinstance(table, TableData)]
    compared.sort(key=lambda table: table.recipe.kind != "compare")
    return [
        _judge_row(table, row, rows[row.against])
        for table in compared
        for rows in [{each.cell: each for each in table.rows}]
        for row in table.rows
        if row.against in rows and not row.baseline
    ]


def group_verdicts(found: Sequence[Verdict]) -> list[list[Verdict]]:
    """Group the comparisons by table and baseline row, in the order in which each begins."""
    made: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in found:
        made.setdefault((verdict.key, verdict.baseline), []).append(verdict)
    return [*made.values()]


def summarize_verdicts(frame: Frame, found: Sequence[Verdict]) -> str:
    """Sum up the report in one sentence: what has finished, and how the comparisons fell."""
    done = int((frame.cells["status"] == "done").sum())
    if not done:
        trials = frame.cells["trial_id"].nunique()
        return f"Nothing has finished: 0 of {trials} trials, so there is no verdict yet."
    if not found:
        return "No table sets cells beside a baseline, so there is no comparison to judge."
    counts = Counter(verdict.call for verdict in found)
    parts = [f"{counts[call]} {call}" for call in CALLS if call in CALLS[:3] or counts[call]]
    plural = "" if len(found) == 1 else "s"
    return f"{len(found)} comparison{plural}: {', '.join(parts)}."


def _judge_row(table: TableData, row: TableRow, base: TableRow) -> Verdict:
    metric = table.metrics[0]
    result, comparison = row.measured[metric], row.measured[metric].compared
    tests, gap = count_tests(table.rows, metric), result.difference
    call = judge_metric(metric, result, base.measured[metric])
    return Verdict(
        table.title,
        table.key,
        table.recipe.study,
        metric,
        table.recipe.digits,
        row.cell,
        describe_row(table, row),
        describe_row(table, base),
        call,
        gap,
        gap.n if gap else 0,
        comparison.p if comparison else None,
        _estimate_seeds_needed(result, tests) if call == "cannot tell" else None,
        gap is not None and can_reach_verdict(gap.n, tests, LEVEL),
        _describe_tuning(table, row, base),
    )


def judge_metric(metric: str, result: MeasuredMetric, base: MeasuredMetric) -> Call:
    """Return the verdict on a row's metric beside that of its baseline row."""
    comparison = result.compared
    if result.summary is None or base.summary is None:
        return "no result"
    if comparison is None or comparison.difference is None:
        return "cannot tell"
    if comparison.zero:
        full = is_share(metric) and result.summary.mean == base.summary.mean == 1.0
        return "saturated" if full else "no difference"
    return call_difference(metric, comparison.difference, comparison.p)


def call_difference(metric: str, difference: Difference, p: float | None) -> Call:
    """Call a difference better or worse where its corrected p is at most `LEVEL`."""
    if p is None or p > LEVEL:
        return "cannot tell"
    return "better" if (difference.mean > 0) != is_lower_better(metric) else "worse"


def _estimate_seeds_needed(result: MeasuredMetric, tests: int) -> int | None:
    """Return the seeds for a power of 0.8 at the level of Holm's first step, 0.05 over the number
    of tests, and never fewer than the permutation test can tell anything from."""
    comparison, gap = result.compared, result.difference
    if comparison is None or gap is None or gap.n < 2:
        return None
    least = max(count_pairs_needed(tests, LEVEL), gap.n + 1)
    if comparison.dz is None:  # alike at every seed: any number that the test can use
        return least
    by_power = pairs_for_power(comparison.dz, LEVEL / tests)
    return None if by_power is None else max(by_power, least)


def describe_row(table: TableData, row: TableRow) -> str:
    """Name a row in words: the components that are on, a variant, or its levels."""
    if table.recipe.kind == "components":
        on = [name for name, mark in zip(table.headers, row.labels, strict=True) if mark == ON]
        return " + ".join(on) or "none"
    if len(table.headers) == 1:
        return row.labels[0]
    named = zip(table.headers, row.labels, strict=True)
    return ", ".join(f"{name.rsplit('.', 1)[-1]} {value}" for name, value in named)


def _describe_tuning(table: TableData, row: TableRow, base: TableRow) -> str:
    """Describe the tuning in words; empty of components, whose cells share what they are around."""
    if row.tuned is None:
        return "" if table.recipe.kind == "components" else "tuning not recorded"
    if "published" in row.tuned:
        return row.tuned
    own = f"tuned with {row.tuned} trials" if row.tuning else "not tuned"
    return own if row.tuning == base.tuning else f"{own}, the baseline with {base.tuned or '?'}"
