"""Comparisons over several data sets: which rows may be set against each other.

A difference between results on two data sets tells of the data, not of methods. Where the cells of
a study are on several, each has its own baseline row: the cell that agrees with the baseline in
every factor but those that name the data set. A recipe may ask the same of factors (`within`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from reports.tables.labels import level


def data_of(trials: pd.DataFrame, cells: pd.DataFrame) -> dict[str, str]:
    """Cell → what tells its data set; a cell that no run tells of is left out.

    Args:
        trials: as in a `Frame`.
        cells: of one study.
    """
    by_run = {
        run: tags.get("ablate.data_fingerprint") or params.get("data.name")
        for run, tags, params in zip(
            trials["run_id"], trials["tags"], trials["params"], strict=True
        )
    }
    found: dict[str, str] = {}
    for cell, run in zip(cells["cell"], cells["run_id"], strict=True):
        if data := by_run.get(run):  # any of its seeds tells
            found.setdefault(cell, str(data))
    return found


def baselines(
    data: Mapping[str, str],
    coords: Mapping[str, Mapping[str, Any]],
    baseline: str,
    within: Sequence[str] = (),
) -> dict[str, str]:
    """Cell → the baseline cell of its data set; a cell of a data set without one is left out.

    Args:
        data: cell → its data set, as of `data_of`.
        coords: cell → its coordinates.
        baseline: the cell that the recipe names.
        within: factors in which a cell agrees with its baseline, as with the data set.
    """
    several = len(set(data.values())) > 1
    if not several and not within:
        return dict.fromkeys(coords, baseline)
    groups: dict[tuple[str, ...], list[str]] = {}
    by_data: dict[str, list[str]] = {}
    for cell, own in coords.items():
        if several and cell not in data:
            continue  # no run of it tells where it belongs, and it has no number
        alike = (level(own.get(name)) for name in within)
        own_data = data[cell] if several else ""
        groups.setdefault((own_data, *alike), []).append(cell)
        by_data.setdefault(own_data, []).append(cell)
    names = {name for own in coords.values() for name in own if name not in within}
    kept = {name for name in names if _tells(name, coords, [*by_data.values()])}
    found: dict[str, str] = {}
    wanted = {name: level(coords[baseline].get(name)) for name in kept}
    if not kept and not any(baseline in group for group in groups.values()):
        return {}
    for group in groups.values():
        first = [baseline] if baseline in group else group
        same = [c for c in first if {n: level(coords[c].get(n)) for n in kept} == wanted]
        found |= dict.fromkeys(group, same[0]) if same else {}
    return found


def _tells(
    name: str, coords: Mapping[str, Mapping[str, Any]], by_data: Sequence[Sequence[str]]
) -> bool:
    """Whether a factor is more than a name of the data sets: it varies on one, or two share it."""
    levels = [{level(coords[cell].get(name)) for cell in cells} for cells in by_data]
    return any(len(of) > 1 for of in levels) or len(set().union(*levels)) < len(levels)
