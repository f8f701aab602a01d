"""What went into the tuning of a comparison's rows: how many trials, through which studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reports.frame import Frame
from reports.tables.model import TableRow


@dataclass(frozen=True)
class Tuning:
    """What a sweep says of the tuning of one comparison.

    trials: cell → trials of all studies whose best it takes, directly or through others; empty
        where the sweep does not say. by_study: the same, study by study. as_published: the settings
        are printed ones, so that no rule of equal budgets holds.
    """

    trials: Mapping[str, int] = field(default_factory=dict)
    by_study: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    as_published: bool = False

    def text(self, cell: str) -> str | None:
        """What stands in the column of trials; None where the sweep does not say."""
        trials = self.trials.get(cell)
        if not self.as_published:
            return None if trials is None else str(trials)
        return f"{trials}, else as published" if trials else "as published"


def tuning(frame: Frame, study: str) -> Tuning:
    """Of one study of the sweep."""
    spec = frame.document.get("spec") or {}
    declared = (frame.document.get("studies") or {}).get(study) or {}
    return Tuning(
        (spec.get("tuning") or {}).get(study) or {},
        (spec.get("lineages") or {}).get(study) or {},
        declared.get("tuning") == "as_published",
    )


def tuning_notes(told: Tuning, rows: Sequence[TableRow]) -> list[str]:
    """Whether the rows had equal budgets, or who had more, and through which studies."""
    budgets = {row.tuning for row in rows if row.tuning is not None}
    notes = []
    if told.as_published:
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
        if len(by := told.by_study.get(row.cell, {})) > 1
    ]
    if through:
        notes.append(f"Tuning trials, study by study: {'; '.join(through)}.")
    return notes
