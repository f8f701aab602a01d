"""Switch components on and off.

A component's mapping is what "off" sets; "on" is the centre. Cells with the same components on are
the same trial in all of these designs.
"""

import itertools
from collections.abc import Collection, Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.parts import Point, build_cell_name
from trainables.words.errors import ConfigError

MAX_COMPONENTS = 12

Off = Annotated[dict[str, Any], Field(min_length=1)]


class ComponentDesign(StudyBase):
    """Base of the designs over components.

    components: what switches each component off, `{name: {path: value}}`.
    """

    components: dict[str, Off] = Field(min_length=1)

    @model_validator(mode="after")
    def check_disjoint(self) -> "ComponentDesign":
        """Refuse a path that two components set when they are off."""
        owners: dict[str, str] = {}  # path → its component
        for name, off in self.components.items():
            for path in off:
                if owners.setdefault(path, name) != name:
                    raise ConfigError(
                        "", f"{owners[path]} and {name} both set {path}", "Keep the path in one"
                    )
        return self

    @property
    def subjects(self) -> Iterable[str]:
        return self.components

    def _build_point(self, cell: str, coords: dict[str, Any], off: Collection[str]) -> Point:
        """Return the cell named `cell` in which the components `off` are switched off."""
        values: dict[str, Any] = {}
        for name, off_values in self.components.items():
            values |= off_values if name in off else {}
        return Point(cell, coords, values, "components")


@DESIGNS.register("components")
class Components(ComponentDesign):
    """All on/off cells, ordered by the number of components that are on, all off first.

    Example:
        >>> components = {"agnostic": {"method.alpha": 0}, "split": {"method.gamma": 0}}
        >>> study = Components(design="components", components=components)
        >>> [point.cell for point in study.points()][:2]
        ['agnostic=off,split=off', 'agnostic=on,split=off']
    """

    design: Literal["components"]
    components: dict[str, Off] = Field(min_length=1, max_length=MAX_COMPONENTS)

    tables: ClassVar[tuple[str, ...]] = ("components", "effects")
    purpose: ClassVar[str] = "switches {} on and off in every combination"

    def points(self) -> list[Point]:
        """Return a cell for each set of components that are on, smaller sets first."""
        names, points = list(self.components), []
        for count in range(len(names) + 1):
            for names_on in itertools.combinations(names, count):
                coords = {name: "on" if name in names_on else "off" for name in names}
                names_off = set(names) - set(names_on)
                points.append(self._build_point(build_cell_name(coords), coords, names_off))
        return points


@DESIGNS.register("leave_one_out")
class LeaveOneOut(ComponentDesign):
    """The centre with all components on ("all"), then without each of them.

    coords: `cell`, the component that is off, or "all".

    Example:
        >>> components = {"agnostic": {"method.alpha": 0}, "split": {"method.gamma": 0}}
        >>> study = LeaveOneOut(design="leave_one_out", components=components)
        >>> [point.cell for point in study.points()]
        ['all', 'without agnostic', 'without split']
    """

    design: Literal["leave_one_out"]

    purpose: ClassVar[str] = "trains with all of {}, then without each"

    def points(self) -> list[Point]:
        one_off = [self._build_point(f"without {n}", {"cell": n}, [n]) for n in self.components]
        return [self._build_point("all", {"cell": "all"}, []), *one_off]


@DESIGNS.register("add_one")
class AddOne(ComponentDesign):
    """All components off ("none"), then only one of them on.

    coords: `cell`, the component that is on, or "none".

    Example:
        >>> components = {"agnostic": {"method.alpha": 0}, "split": {"method.gamma": 0}}
        >>> study = AddOne(design="add_one", components=components)
        >>> [point.cell for point in study.points()]
        ['none', 'only agnostic', 'only split']
    """

    design: Literal["add_one"]

    purpose: ClassVar[str] = "trains without {}, then with one at a time"

    def points(self) -> list[Point]:
        names = self.components.keys()
        one_on = [self._build_point(f"only {n}", {"cell": n}, names - {n}) for n in names]
        return [self._build_point("none", {"cell": "none"}, names), *one_on]
