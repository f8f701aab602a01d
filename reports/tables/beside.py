"""Rows of a comparison that stand beside those written in its study.

Where a neutral cell, a method switched off, was the best of a method's tuning, its row is the plain
loss under another name. The best of its other cells stands beside it, as a row of its own, whose
name ends in `OTHER`. A combination that no trial could be has a row without numbers, and one that a
paper prints and nobody trains has its printed ones alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from reports.frame import OTHER, Frame
from reports.published import papers
from reports.recipe import Table
from reports.tables.model import Measured, TableRow

Labels = Callable[[str, Mapping[str, Any]], tuple[str, ...]]

NEUTRAL = "neutral"  # coordinate of such cells, and of the rows that leave them out


def beside_their_rows(cells: Iterable[str]) -> list[str]:
    """The cells of a comparison, the best others right after the rows that they belong to."""
    every = list(cells)
    rows = [cell for cell in every if not cell.endswith(OTHER)]
    return [each for row in rows for each in (row, row + OTHER) if each in every]


def marked(labels: tuple[str, ...], cell: str, cells: Collection[str]) -> tuple[str, ...]:
    """The labels of a row, which say where its best is neutral, or that it leaves those out."""
    if cell + OTHER in cells:
        return (f"{labels[0]} (best is neutral)", *labels[1:])
    if cell.endswith(OTHER):
        return (f"{labels[0].removesuffix(OTHER)}{OTHER}", *labels[1:])
    return labels


def neutral_notes(cells: Collection[str]) -> list[str]:
    """One line for each row whose best is neutral."""
    return [
        f"{cell}: best is neutral. No configuration tried was better in validation than "
        f"the plain loss at the best rates of the baseline; {cell}{OTHER}: the best other one."
        for cell in cells
        if cell + OTHER in cells
    ]


def refused_rows(frame: Frame, recipe: Table, labels: Labels) -> list[TableRow]:
    """A row for each combination of the study that is refused; nothing was planned of it."""
    nothing = dict.fromkeys(recipe.metrics, Measured(None))
    return [
        TableRow(each["cell"], labels(each["cell"], each["coords"]), nothing, (), 0)
        for each in _refused(frame, recipe.study)
    ]


def refused_notes(frame: Frame, study: str) -> list[str]:
    """The planner's reasons, one note each."""
    by_reason: dict[str, list[str]] = {}
    for each in _refused(frame, study):
        by_reason.setdefault(each["reason"], []).append(each["cell"])
    return [f"Refused: {'; '.join(cells)}: expected {why}." for why, cells in by_reason.items()]


def printed_rows(recipe: Table, headers: Sequence[str], rows: Sequence[TableRow]) -> list[TableRow]:
    """What the paper prints and no cell stands for, where the recipe asks for it (`others`)."""
    told = recipe.published
    if told is None or not told.others:
        return []
    table = papers.table(told.table)
    wanted = table.rows if told.others is True else table.like(told.others)
    columns = {metric: recipe.published_column(metric) for metric in recipe.metrics}
    trained = {
        result.printed.row
        for row in rows
        for result in row.measured.values()
        if result.printed is not None
    }
    found = []
    for row in wanted:
        measured = {
            metric: Measured(None, printed=table.value(row, column) if column else None)
            for metric, column in columns.items()
        }
        if row.name not in trained and any(each.printed for each in measured.values()):
            labels = (f"{row.name} (published only)", *[""] * (len(headers) - 1))
            found.append(TableRow(row.name, labels, measured, (), 0, printed_only=True))
    return found


def _refused(frame: Frame, study: str) -> list[dict[str, Any]]:
    spec = frame.document.get("spec") or {}
    found: list[dict[str, Any]] = (spec.get("refused") or {}).get(study) or []
    return found
