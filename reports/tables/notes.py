"""Write the notes below a table of comparisons: tests, limits, budgets.

Notes that apply to all tables have the same words, so a report prints them once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reports.frame import Frame
from reports.recipe import Table
from reports.stats.comparison_rule import load_rule
from reports.tables.judging import find_smallest
from reports.tables.labels import display_scale, format_metric_label, is_share
from reports.tables.model import TableRow

EFFECT_SIZES = "d_z"  # how the note on the columns of effect sizes starts
SIZES = (
    f"{EFFECT_SIZES}: mean difference in standard deviations of the differences. P(better): "
    "share of pairs of a run and one of the baseline that it wins, ties half, with a 95 % "
    "percentile bootstrap interval, which is too narrow at few seeds and none where all runs "
    "of one side win."
)
BOLD = "Bold: better than the baseline row, by the primary metric."
ONE_SEED = "Δ: difference to the baseline row. One seed gives no interval and no verdict."


def explain_differences(frame: Frame, recipe: Table, rows: Sequence[TableRow]) -> list[str]:
    """Explain Δ, the deciding metric and the number of comparisons."""
    pairs = [m.difference.n for row in rows for m in row.measured.values() if m.difference]
    if not pairs:
        return []
    if max(pairs) < 2:
        return [ONE_SEED]
    primary = recipe.metrics[0]
    delta = find_smallest(frame, primary) * display_scale(primary)
    smallest = f", δ = {delta:g}" if delta else ""
    decides = (
        f"Δ: row − baseline row, 95 % over the family. {load_rule(frame.recipe.rule).description} "
        "Better or worse: the interval leaves out 0. No difference: it lies within ±δ. Open: "
        "neither."
    )
    family = max(find_family_sizes(rows, primary), default=0)
    count = f"{family} comparison{'' if family == 1 else 's'}"
    if recipe.kind == "components":
        count = "verdicts are of the terms of its effects, where cells repeat over seeds"
    return [decides, SIZES, f"{format_metric_label(primary)} decides{smallest}; {count}."]


def find_family_sizes(rows: Sequence[TableRow], metric: str) -> list[int]:
    """Return the number of comparisons in the family of each compared row."""
    comparisons = (row.measured[metric].compared for row in rows)
    return [comparison.family for comparison in comparisons if comparison and comparison.judgement]


def explain_limits(metrics: Sequence[str], rows: Sequence[TableRow]) -> list[str]:
    """Name metrics that cannot distinguish rows: all at their limit, or equal at every seed."""
    notes = []
    for metric in metrics:
        results = [result for row in rows if (result := row.measured[metric]).summary]
        means = {result.summary.mean for result in results if result.summary}
        comparisons = [result.compared for result in results if result.compared]
        if len(results) < 2:
            continue
        if is_share(metric) and means == {1.0}:
            notes.append(
                f"Saturated: {format_metric_label(metric)} is 100 in every row, so that it tells "
                "none from another; a harder task or a finer metric would."
            )
        elif comparisons and all(
            comparison.judgement and comparison.judgement.same_as for comparison in comparisons
        ):
            notes.append(
                f"No difference: {format_metric_label(metric)} is the same in every row at every "
                "seed. Where rows should differ, look whether what was varied had any effect."
            )
    return notes


@dataclass(frozen=True)
class Tuning:
    """The tuning budgets of one comparison.

    Attributes:
        trials: cell → number of trials of all studies behind it; empty if unknown.
        by_study: the same by study.
        as_published: whether the settings are printed ones, so that equal budgets do not apply.
    """

    trials: Mapping[str, int] = field(default_factory=dict)
    by_study: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    as_published: bool = False

    def format_budget(self, cell: str) -> str | None:
        """Return the text of the column of trials, or None if unknown."""
        trials = self.trials.get(cell)
        if not self.as_published:
            return None if trials is None else str(trials)
        return f"{trials}, else as published" if trials else "as published"


def read_tuning(frame: Frame, study: str) -> Tuning:
    """Return the tuning budgets of a study from the sweep."""
    return Tuning(
        frame.get_plan_note("tuning", study) or {},
        frame.get_plan_note("lineages", study) or {},
        frame.get_declared_study(study).get("tuning") == "as_published",
    )


def explain_stages(declared: Mapping[str, Any], rows: Sequence[TableRow]) -> list[str]:
    """Explain the number of seeds if a first stage decided it."""
    if not declared.get("first_stage"):
        return []
    first, seeds = len(declared["first_stage"]), max((row.planned for row in rows), default=0)
    most = len(declared.get("seeds") or ())
    text = f"Seeds: a first stage of {first} decided for {seeds}, and gives the standard deviation."
    if seeds >= most:
        text += f" It ended at the limit of {most}, so that intervals may be longer than asked for."
    return [text]


def explain_tuning(tuned: Tuning, rows: Sequence[TableRow]) -> list[str]:
    """Say whether the rows had equal budgets, or which had more and through which studies."""
    budgets = {row.tuning for row in rows if row.tuning is not None}
    notes = []
    if tuned.as_published:
        notes.append(
            "Tuning: as published. The settings are printed ones; budgets need not be equal."
        )
    elif len(budgets) == 1:
        (trials,) = budgets
        notes.append(
            f"Tuning: {trials} trials planned for each row, an equal budget."
            if trials
            else "Tuning: none in this sweep: no row takes the best of a study, and all have their "
            "settings as its file writes them."
        )
    elif budgets:
        by_row = ", ".join(f"{row.cell} {row.tuning}" for row in rows)
        notes.append(
            f"Tuning budgets differ, in trials planned: {by_row}. Differences may be due to that."
        )
    through = [
        f"{row.cell}: {' + '.join(f'{n} of {study}' for study, n in by.items())}"
        for row in rows
        if len(by := tuned.by_study.get(row.cell, {})) > 1
    ]
    if through:
        notes.append(f"Tuning trials, study by study: {'; '.join(through)}.")
    return notes
