"""What studies take from one another, as far as their designs tell, before any trial has run.

A study gives to those centred on it what its cells set, and what it has itself taken; one that
promotes gives what the study gives whose cells it trains again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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
