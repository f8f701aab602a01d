"""Describe the parameters of a search as axes of `slices`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from reports.figures.figure import FigureOptions
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.importance import find_search_space
from reports.tables.labels import format_coordinates, format_level


class AxesOptions(FigureOptions):
    """Options of `slices`.

    axes: parameters of the search, in this order; default: all.
    """

    shown_as = "search"
    axes: tuple[str, ...] = Field((), max_length=12)

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
        """Return the position of a value: the number itself, or the index of a choice."""
        return float(self.choices.index(format_level(value)) if self.choices else value)


def select_axes(frame: Frame, recipe: Figure, options: AxesOptions) -> list[Axis]:
    """Return an axis for each parameter that the options name, or else that the search has."""
    space = find_search_space(frame, recipe.studies[0])
    paths = list(dict.fromkeys(options.axes or space))
    axes = []
    for path, name in zip(paths, format_coordinates(paths), strict=True):
        axis, choices = space[path], tuple(map(format_level, space[path].get("choice") or ()))
        low, high = (0, len(choices) - 1) if choices else (axis["low"], axis["high"])  # positions
        axes.append(Axis(path, name, bool(axis.get("log")), float(low), float(high), choices))
    return axes
