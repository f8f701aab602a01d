"""Designs over components that can be switched off.

A component's mapping is what "off" sets; "on" is the centre. All combinations, all but one, or only
one: cells with the same components on are the same trial in each of these designs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.parts import Point, cell_name

MAX_COMPONENTS = 12

Off = Annotated[dict[str, Any], Field(min_length=1)]


class Switched(StudyBase):
    """What the designs over components share.

    components: what switches each of them off, `{name: {path: value}}`.
    """

    components: dict[str, Off] = Field(min_length=1)

    @model_validator(mode="after")
    def apart(self) -> Switched:
        owners: dict[str, str] = {}
        for name, off in self.components.items():
            for path in off:
                if path in owners:
                    raise ValueError(f"{path} in one component, not in {owners[path]} and {name}")
                owners[path] = name
        return self

    def off(self, names: Iterable[str]) -> dict[str, Any]:
        """What switching these off sets."""
        chosen = set(names)
        return {
            path: value
            for name, off in self.components.items()
            if name in chosen
            for path, value in off.items()
        }


@DESIGNS.register("components")
class Components(Switched):
    """All on/off cells, ordered by the number of components that are on, all off first."""

    design: Literal["components"]
    components: dict[str, Off] = Field(min_length=1, max_length=MAX_COMPONENTS)

    tables: ClassVar[tuple[str, ...]] = ("components", "effects")

    def points(self) -> list[Point]:
        names = list(self.components)
        points = []
        for count in range(len(names) + 1):
            for on in itertools.combinations(names, count):
                coords = {name: "on" if name in on else "off" for name in names}
                values = self.off(name for name in names if name not in on)
                points.append(Point(cell_name(coords), coords, values, "components"))
        return points


@DESIGNS.register("leave_one_out")
class LeaveOneOut(Switched):
    """The centre with all components on ("all"), then without each of them.

    coords: `cell`, the component that is off, or "all".
    """

    design: Literal["leave_one_out"]

    def points(self) -> list[Point]:
        return [Point("all", {"cell": "all"}, {}, "components")] + [
            Point(f"without {name}", {"cell": name}, self.off([name]), "components")
            for name in self.components
        ]


@DESIGNS.register("add_one")
class AddOne(Switched):
    """All components off ("none"), then only one of them on.

    coords: `cell`, the component that is on, or "none".
    """

    design: Literal["add_one"]

    def points(self) -> list[Point]:
        names = list(self.components)
        points = [Point("none", {"cell": "none"}, self.off(names), "components")]
        for name in names:
            values = self.off(other for other in names if other != name)
            points.append(Point(f"only {name}", {"cell": name}, values, "components"))
        return points
