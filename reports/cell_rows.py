"""Join cells with their trials: one row for each cell and seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

CELL = ("study", "cell", "idx", "seed", "fold", "coords", "trial_id")


def build_cell_rows(
    cells: Iterable[Mapping[str, Any]],
    trials: Mapping[str, Mapping[str, Any]],
    missing: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return each cell at each seed and fold with the columns of its trial.

    Args:
        cells: mappings with the columns of `CELL`; fold and coords may be missing.
        trials: trial id → columns, such as status and metrics.
        missing: columns of a cell whose trial is unknown.
    """
    return [
        {"fold": None, **{key: cell[key] for key in CELL if key in cell}}
        | dict(trials.get(cell["trial_id"], missing))
        for cell in cells
    ]
