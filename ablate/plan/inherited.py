"""What studies take from one another, as far as their designs tell, before any trial has run.

A study gives to those centred on it what its cells set, and what it has itself taken; one that
promotes gives what the study gives whose cells it trains again.

The budget of a row is the number of trials (cells × seeds × folds) of all studies whose best it
takes, directly or through others: what `around` and `promote` inherit counts. Rows tuned with
different budgets are compared unfairly (Musgrave et al., "A Metric Learning Reality Check", ECCV
2020): a plan warns of them (`ablate/plan/fairness.py`), a report states them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ablate.designs.parts import NEUTRAL
from ablate.designs.study import Study
from ablate.values.paths import expand, has, lookup

Studies = Mapping[str, Study]


def examples(studies: Studies, name: str) -> Iterator[dict[str, Any]]:
    """What the cells of a study that promotes may take, by path: one for each cell of its source,
    as far as it can be told. Nothing of another design, whose centre stands for its cells."""
    source = studies[name].source()
    if source is None:
        return
    for values in values_given(studies, source.best_of):
        nested = expand(values, source.best_of)
        paths = values if source.take is None else source.take
        yield {path: lookup(nested, path) for path in paths if has(nested, path)}


def values_given(studies: Studies, name: str) -> Iterator[dict[str, Any]]:
    """What each cell of a study gives to those centred on it: but for what it has itself taken,
    and what a search will propose."""
    study = studies[name]
    if not study.fixed:
        yield {}
    elif study.source() is not None:
        yield from examples(studies, name)
    else:
        yield from map(study.gives, study.listed)


def paths_given(studies: Studies, name: str) -> set[str]:
    """The paths that a study may give to those centred on it."""
    study = studies[name]
    own = {path for point in study.listed for path in study.gives(point)}
    return own | set(study.paths) | paths_taken(studies, name)


def paths_taken(studies: Studies, name: str) -> set[str]:
    """The paths that a study may take from others."""
    paths: set[str] = set()
    for _, around in studies[name].references():
        paths |= paths_given(studies, around.best_of) if around.take is None else set(around.take)
    return paths


def always_given(studies: Studies, name: str) -> list[str]:
    """The paths that a study gives to others in any case."""
    source = studies[name].source()
    if source is not None:
        return list(source.take or always_given(studies, source.best_of))
    return studies[name].always_gives()


def varied(studies: Studies, name: str) -> list[str]:
    """The paths in which the cells of a study differ; none where its variants tell them apart."""
    source = studies[name].source()
    if source is not None:
        return list(source.take or varied(studies, source.best_of))
    return list(studies[name].paths)


def within(path: str, other: str) -> bool:
    """Whether a path is another one, or below it."""
    return path == other or path.startswith(f"{other}.")


# ------------------------------------------------------------------ budgets


Lineage = dict[str, int]  # study → its trials, the one that a row asks first


def lineages(study: Study, studies: Studies, size: Callable[[str], int]) -> dict[str, Lineage]:
    """Cell → the studies behind it and their trials, each study once.

    A neutral cell at a baseline's best rates is a candidate of that baseline too, whose row counts
    it: as many as the row with the most of them has.
    """
    reached = {
        point.cell: behind(studies, (around.best_of for around in study.needs(point.arm)))
        for point in study.listed
    }

    def count_neutral(own: Sequence[str], other: Sequence[str]) -> Lineage:
        """Return neutral cells of another row's studies that are centred on a study of `own`."""
        baselines = {name: studies[name].baseline() for name in other if name not in own}
        return {
            f"{name}'s neutral cell": size(name) // studies[name].size
            for name, baseline in baselines.items()
            if baseline is not None and baseline.best_of in own
        }

    return {
        cell: {name: size(name) for name in own}
        | max((count_neutral(own, other) for other in reached.values()), key=_total)
        for cell, own in reached.items()
    }


def _total(lineage: Lineage) -> int:
    return sum(lineage.values())


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
