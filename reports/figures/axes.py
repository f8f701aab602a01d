"""The axes of a search's space, as parallel coordinates and slices have them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator

from reports.errors import ReportError
from reports.figures.figure import FigureOptions
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.importance import find_search_space
from reports.tables.labels import format_coordinates, format_level

MOST_AXES = 12  # of a search in one picture


class AxesOptions(FigureOptions):
    """Options of `parallel` and `slices`.

    axes: parameters of the search, in this order; default: all.
    """

    shown_as = "search"
    axes: tuple[str, ...] = Field((), max_length=MOST_AXES)

    @field_validator("axes", mode="after")
    @classmethod
    def check_axes_distinct(cls, axes: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(axes)) < len(axes):
            raise ValueError(f"each parameter once, not {', '.join(axes)}")
        return axes

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        return {"axes": self.axes}


@dataclass(frozen=True)
class Axis:
    """One parameter: `choices` as they are listed, or numbers from `low` to `high`."""

    path: str
    name: str
    log: bool
    low: float
    high: float
    choices: tuple[str, ...] = ()

    def locate_value(self, value: Any) -> float:
        """Return where a value stands: the number itself, or the index of a choice."""
        return float(self.choices.index(format_level(value)) if self.choices else value)

    def to_axis_fraction(self, value: Any) -> float:
        """Return how far along the axis a value stands, 0 at the low end and 1 at the high one; a
        lone value halfway."""
        at, low, high = self.locate_value(value), self.low, self.high
        if self.log:
            at, low, high = math.log(at), math.log(low), math.log(high)
        return (at - low) / (high - low) if high > low else 0.5


def select_axes(frame: Frame, recipe: Figure, options: AxesOptions) -> list[Axis]:
    """Return the parameters of the recipe's study that it asks for, in its order, or all.

    Raises:
        ReportError: the study is no search, or lacks a parameter.
    """
    study = recipe.studies[0]
    space = find_search_space(frame, study)
    paths = list(options.axes or space)
    if unknown := [path for path in paths if path not in space]:
        raise ReportError(
            f"report.figures: {study} does not search {unknown[0]!r}. It searches "
            f"{', '.join(space)}."
        )
    axes = []
    for path, name in zip(paths, format_coordinates(paths), strict=True):
        axis, choices = space[path], tuple(map(format_level, space[path].get("choice") or ()))
        low, high = (0, len(choices) - 1) if choices else (axis["low"], axis["high"])
        axes.append(Axis(path, name, bool(axis.get("log")), float(low), float(high), choices))
    return axes
