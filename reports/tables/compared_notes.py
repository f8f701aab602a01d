"""What stands below a table of comparisons: which tests, what they could tell, what is at a limit.

What is the same for all tables is worded alike in all, so that a report tells it once.
"""

from __future__ import annotations

from collections.abc import Sequence

from reports.stats.attainable import can_reach_verdict, pairs_needed
from reports.stats.paired import LEVEL, least_p
from reports.tables.labels import is_share, metric_label
from reports.tables.model import TableRow

EFFECT_SIZES = "d_z"  # how the note on the columns of effect sizes starts
DELTA = (
    "Δ: mean difference to the baseline row, paired by seed, with its 95 % paired-t interval. p: "
    "two-sided sign-flip permutation test, Holm-corrected over the comparisons of the table; "
    f"better or worse is said where it is at most {LEVEL}."
)
SIZES = (
    f"{EFFECT_SIZES}: mean difference in standard deviations of the differences. P(better): "
    "share of pairs of a run and one of the baseline that it wins, ties half, with a 95 % "
    "percentile bootstrap interval, which is too narrow at few seeds and none where all runs "
    "of one side win."
)
BOLD = (
    "Bold: better than the baseline row (sign-flip permutation test, Holm-corrected p at most "
    f"{LEVEL})."
)
ONE_SEED = (
    "Δ: difference to the baseline row; one seed gives no interval, no effect size and no test."
)


def tested(rows: Sequence[TableRow], metric: str) -> int:
    """Comparisons of a metric that have a test: those that Holm corrects over."""
    told = [row.measured[metric].compared for row in rows]
    return sum(each is not None and each.permutation is not None for each in told)


def difference_notes(rows: Sequence[TableRow]) -> list[str]:
    """Of Δ, its tests and what their number of seeds allows; none without a difference."""
    pairs = [m.difference.n for row in rows for m in row.measured.values() if m.difference]
    if not pairs:
        return []
    if max(pairs) < 2:
        return [ONE_SEED]
    most = max(pairs)
    comparisons = max(tested(rows, metric) for metric in rows[0].measured)
    least, needed = least_p(most) or 1.0, pairs_needed(comparisons, LEVEL)
    if can_reach_verdict(most, comparisons, LEVEL):
        return [
            DELTA,
            SIZES,
            f"p: corrected over {comparisons} comparison(s).",
        ]
    return [
        DELTA,
        SIZES,
        f"Too few seeds for a verdict: with {most} pairs over {comparisons} comparison(s) no "
        f"corrected p can be below {min(1.0, least * comparisons):.2g}; {needed} seeds could "
        f"reach {LEVEL}.",
    ]


def limit_notes(metrics: Sequence[str], rows: Sequence[TableRow]) -> list[str]:
    """Metrics that tell no row from another: all at their limit, or the same at every seed."""
    notes = []
    for metric in metrics:
        found = [m.summary for row in rows if (m := row.measured[metric]).summary]
        means = {each.mean for each in found if each}
        told = [m.compared for row in rows if (m := row.measured[metric]).compared]
        if len(found) < 2:
            continue
        if is_share(metric) and means == {1.0}:
            notes.append(
                f"Saturated: {metric_label(metric)} is 100 in every row, so that it tells none "
                "from another; a harder task or a finer metric would."
            )
        elif told and all(each.zero for each in told if each):
            notes.append(
                f"No difference: {metric_label(metric)} is the same in every row at every seed. "
                "Where rows should differ, look whether what was varied had any effect."
            )
    return notes
