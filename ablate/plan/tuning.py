"""How much tuning went into each row of a comparison, and through which studies.

The budget of a row is the number of trials (cells × seeds × folds) of all studies whose best it
takes, directly or through others: what `around` and `promote` inherit counts. Rows tuned with
different budgets are compared unfairly (Musgrave et al., "A Metric Learning Reality Check", ECCV
2020): a plan warns of them (`ablate/plan/fairness.py`), a report states them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ablate.designs.study import Study

Size = Callable[[str], int]
Lineage = dict[str, int]  # study → its trials, the one that a row asks first


def lineages(study: Study, studies: Mapping[str, Study], size: Size) -> dict[str, Lineage]:
    """Cell → the studies behind it and their trials, each study once."""
    return {
        point.cell: {
            name: size(name)
            for name in behind(studies, [around.best_of for around in study.needs(point.arm)])
        }
        for point in study.listed
    }


def behind(studies: Mapping[str, Study], names: Iterable[str]) -> list[str]:
    """These studies and all that they take from, nearest first."""
    reached: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in reached:
            reached[name] = None
            waiting += [c for _, _, centres in studies[name].arounds() for c in centres]
    return list(reached)
