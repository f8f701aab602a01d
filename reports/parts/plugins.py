"""Tables and figures of other packages: entry points of `ablate.tables` and `ablate.figures`.

A table's entry is a function (Frame, recipe.Table, the study's cells) → `tables.model.Sheet`, a
figure's one of (Frame, recipe.Figure) → `figures.drawn.Drawn`. Names are read without importing
what they name, so that a plan stays quick.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal

Kind = Literal["tables", "figures"]


@cache
def kinds(of: Kind) -> dict[str, Any]:
    """Name → its entry point, by name."""
    entries = entry_points().select(group=f"ablate.{of}")
    return {entry.name: entry for entry in sorted(entries, key=lambda each: each.name)}


def builder(of: Kind, name: str) -> Callable[..., Any]:
    """What makes a table or a figure of that kind."""
    made: Callable[..., Any] = kinds(of)[name].load()
    return made
