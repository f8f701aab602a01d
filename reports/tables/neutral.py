"""Where a neutral cell, a method switched off, was the best of a method's tuning.

A row whose best is neutral is the plain loss under another name. The best of its other cells stands
beside it, as a row of its own, whose name ends in `OTHER`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from reports.frame import OTHER

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
