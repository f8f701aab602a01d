"""Factors and their levels: what grids, one-factor studies and factorials share.

A factor is a path with its levels (`loss.temperature: [0.05, 0.1]`), and so it may be any field of
a trial, a whole component too (`loss: [{name: proxy_anchor}, {name: normsoftmax}]`); or a name with
named levels, each a partial trial: `head: {small: {embedding.dim: 64}, large: {…}}`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from ablate.designs.parts import MAX_CELLS
from ablate.values.canonical import canonical
from ablate.values.errors import shown
from trainables.errors import ConfigError

LISTED, NAMED = "list of levels", "named levels"  # the members of the union

Levels = Annotated[
    Annotated[tuple[Any, ...], Field(min_length=1), Tag(LISTED)]
    | Annotated[dict[str, dict[str, Any]], Field(min_length=1), Tag(NAMED)],
    Discriminator(lambda given: NAMED if isinstance(given, dict) else LISTED),
]


def values_of(factor: str, levels: Levels, level: Any) -> dict[str, Any]:
    """What a level sets, by path."""
    return dict(levels[level]) if isinstance(levels, dict) else {factor: level}


def check_factors(factors: dict[str, Levels], key: str, least: int = 1) -> None:
    """Raise for a level given twice, too few levels, or a path that two factors set."""
    owners: dict[str, str] = {}
    for factor, levels in factors.items():
        place = f"{key}.{factor}"
        if len({canonical(level) for level in levels}) != len(levels):
            remedy = "Remove one of the two"
            raise ConfigError(place, shown(list(levels)), f"each value of {factor} once", remedy)
        if len(levels) < least:
            remedy = "Set what does not vary in the study's `trial`"
            raise ConfigError(place, f"{len(levels)} level", f"at least {least}", remedy)
        for path in {path for level in levels for path in values_of(factor, levels, level)}:
            if path in owners:
                raise ConfigError(
                    place,
                    f"{path} in {owners[path]} and {factor}",
                    f"{path} in one factor",
                    "Make them one factor with named levels",
                )
            owners[path] = factor


def check_size(cells: int) -> None:
    if cells > MAX_CELLS:
        raise ValueError(f"at most {MAX_CELLS} cells, not {cells}")
