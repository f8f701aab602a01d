"""How much tuning went into each row of a comparison, and through which studies.

The budget of a row is the number of trials (cells × seeds × folds) of all studies whose best it
takes, directly or through others: what `around` and `promote` inherit counts. Rows tuned with
different budgets are compared unfairly (Musgrave et al., "A Metric Learning Reality Check", ECCV
2020): a plan warns of them (`ablate/plan/fair/rule.py`), a report states them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ablate.designs.parts import NEUTRAL
from ablate.designs.study import Study

Size = Callable[[str], int]
Lineage = dict[str, int]  # study → its trials, the one that a row asks first


def lineages(studies: Mapping[str, Study], size: Size) -> dict[str, dict[str, Lineage]]:
    """Comparison → cell → the studies that tuned it, with their trials."""
    return {
        name: of_rows(study, studies, size)
        for name, study in studies.items()
        if "tuning" in type(study).model_fields
    }


def totals(rows: Mapping[str, Mapping[str, Lineage]]) -> dict[str, dict[str, int]]:
    """Comparison → cell → trials that went into the tuning of it."""
    return {
        name: {cell: sum(lineage.values()) for cell, lineage in of.items()}
        for name, of in rows.items()
    }


def of_rows(study: Study, studies: Mapping[str, Study], size: Size) -> dict[str, Lineage]:
    """Cell → the studies behind it and their trials, each study once.

    A neutral cell at a baseline's best rates is a candidate of that baseline too, whose row counts
    it: as many as the row with the most of them has.
    """
    asked = {
        point.cell: [around.best_of for around in study.needs(point.arm)] for point in study.listed
    }
    reached = {cell: behind(studies, names) for cell, names in asked.items()}
    return {
        cell: {name: size(name) for name in mine}
        | max(
            (_neutral(studies, mine, other, size) for other in reached.values()),
            key=lambda found: sum(found.values()),
        )
        for cell, mine in reached.items()
    }


def _neutral(
    studies: Mapping[str, Study], mine: Sequence[str], other: Sequence[str], size: Size
) -> Lineage:
    """The neutral cells of another row's studies that are centred on studies of this row."""
    found = {}
    for name in other:
        baseline = studies[name].baseline()
        if baseline is not None and baseline.best_of in mine and name not in mine:
            found[f"{name}'s neutral cell"] = size(name) // studies[name].size
    return found


def behind(studies: Mapping[str, Study], names: Iterable[str]) -> list[str]:
    """These studies and all that they take from, nearest first."""
    reached: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in reached:
            reached[name] = None
            waiting += [
                around.best_of
                for place, around in studies[name].references()
                if place != NEUTRAL  # its neutral cell is one candidate, no more
            ]
    return list(reached)
