"""Find out from the designs what studies take from each other, before any trial has run.

A study exports what its cells set and what it has taken itself. A promotion exports what its source
exports.

The budget of a row is the number of trials (cells × seeds × folds) of all studies whose best it
takes, directly or through others. Rows with different budgets are compared unfairly (Musgrave et
al., "A Metric Learning Reality Check", ECCV 2020): a plan warns of them
(`ablate/plan/fairness.py`), and a report states them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ablate.designs.parts import NEUTRAL
from ablate.designs.study import Study
from ablate.values.paths import expand_paths, get_at, has_path

Studies = Mapping[str, Study]


def list_example_layers(studies: Studies, name: str) -> Iterator[dict[str, Any]]:
    """Yield the values that cells of a promotion take, by path: one mapping for each cell of its
    source.

    Values that the source has taken itself, or that a search will propose, are left out. Other
    designs yield nothing.
    """
    source = studies[name].find_source_cell()
    if source is None:
        return
    origin = studies[source.best_of]
    exported: Iterable[dict[str, Any]] = [{}]
    if origin.find_source_cell() is not None:
        exported = list_example_layers(studies, source.best_of)
    elif origin.is_fixed:
        exported = map(origin.export_params, origin.all_points)
    for values in exported:
        nested = expand_paths(values, source.best_of)
        paths = values if source.take is None else source.take
        yield {path: get_at(nested, path) for path in paths if has_path(nested, path)}


def list_exported_paths(studies: Studies, name: str) -> set[str]:
    """Return the paths that a study may export."""
    study = studies[name]
    set_paths = {path for point in study.all_points for path in study.export_params(point)}
    return set_paths | set(study.paths) | list_inherited_paths(studies, name)


def list_inherited_paths(studies: Studies, name: str) -> set[str]:
    """Return the paths that a study may take from others."""
    paths: set[str] = set()
    for _, around in studies[name].references():
        paths |= (
            list_exported_paths(studies, around.best_of)
            if around.take is None
            else set(around.take)
        )
    return paths


def list_always_exported_paths(studies: Studies, name: str) -> list[str]:
    """Return the paths that a study passes on to others whichever of its cells is best."""
    source = studies[name].find_source_cell()
    if source is not None:
        return list(source.take or list_always_exported_paths(studies, source.best_of))
    return studies[name].find_always_exported_paths()


# ------------------------------------------------------------------ budgets


Lineage = dict[str, int]  # study → its trials, the one that a row asks first


def trace_lineages(
    study: Study, studies: Studies, size: Callable[[str], int]
) -> dict[str, Lineage]:
    """Map each cell to the studies behind it with their numbers of trials.

    The neutral cell of a method's study is also a candidate of its baseline. The baseline's row
    counts it once for each such study behind the row that has the most.
    """
    upstream = {
        point.cell: list_upstream_studies(
            studies, (around.best_of for around in study.list_needed_bases(point.levels))
        )
        for point in study.all_points
    }

    def count_neutral(names: Sequence[str], others: Sequence[str]) -> Lineage:
        """Return the neutral cells of `others` whose baseline is one of `names`."""
        unshared = [other for other in others if other not in names]
        baselines = {other: studies[other].find_baseline() for other in unshared}
        return {
            f"{other}'s neutral cell": size(other) // studies[other].size
            for other, baseline in baselines.items()
            if baseline is not None and baseline.best_of in names
        }

    return {
        cell: {name: size(name) for name in names}
        | max(
            (count_neutral(names, others) for others in upstream.values()),
            key=lambda lineage: sum(lineage.values()),
        )
        for cell, names in upstream.items()
    }


def list_upstream_studies(
    studies: Studies, names: Iterable[str], *, with_neutral: bool = False
) -> list[str]:
    """Return these studies and all studies on which they build, nearest first.

    Args:
        with_neutral: also follow the baselines of their neutral cells.
    """
    upstream: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in upstream:
            upstream[name] = None
            waiting += [
                around.best_of
                for field, around in studies[name].references()
                if with_neutral or field != NEUTRAL
            ]
    return list(upstream)
