"""One row per cell and seed, as results from Python, exports of a ledger and reports have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

CELL = ("study", "cell", "idx", "seed", "fold", "coords", "trial_id")


def build_cell_rows(
    cells: Iterable[Mapping[str, Any]],
    trials: Mapping[str, Mapping[str, Any]],
    missing: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return each cell at each seed and fold beside what is known of its trial.

    Args:
        cells: each with the columns of `CELL`; fold (None) and coords may be absent.
        trials: id → columns of a trial, as its status and metrics.
        missing: columns where a cell's trial is not known.
    """
    return [
        {"fold": None, **{key: cell[key] for key in CELL if key in cell}}
        | dict(trials.get(cell["trial_id"], missing))
        for cell in cells
    ]
