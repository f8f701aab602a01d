"""What effects and attributions are computed of: levels of factors, and values at them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.frame import Frame
from reports.parts.base import level_name as named
from reports.tables.cells import by_seed, coordinates
from reports.tables.factors.shapley import Cells, Levels
from reports.tables.labels import level


def levels_of(frame: Frame, cells: pd.DataFrame) -> Levels:
    """The levels of each factor, low first: off before on, numbers ascending, else as listed."""
    seen: dict[str, dict[str, Any]] = {}
    for coords in coordinates(frame, cells):
        for name, value in coords.items():
            seen.setdefault(name, {}).setdefault(level(named(value)), named(value))
    levels = {}
    for name, values in seen.items():
        texts = list(values)
        if set(texts) == {"on", "off"}:
            texts = ["off", "on"]
        elif all(isinstance(v, int | float) and not isinstance(v, bool) for v in values.values()):
            texts.sort(key=lambda text: float(values[text]))
        levels[name] = texts
    return levels


def cells_of(frame: Frame, cells: pd.DataFrame, metric: str) -> Cells:
    """Values by seed at each combination of levels; what is one trial in two cells counts once."""
    by_cell: dict[tuple[tuple[str, str], ...], dict[int, float]] = {}
    at = coordinates(frame, cells)
    for cell in dict.fromkeys(cells["cell"]):
        mine = (cells["cell"] == cell).to_numpy()
        coords = at[int(mine.argmax())]
        key = tuple(sorted((name, level(named(value))) for name, value in coords.items()))
        by_cell.setdefault(key, {}).update(by_seed(cells[mine], metric))
    return [(dict(key), values) for key, values in by_cell.items()]
