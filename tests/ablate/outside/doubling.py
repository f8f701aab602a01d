"""A design of another package: a value that doubles from cell to cell."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.parts import Point, build_cell_name


@DESIGNS.register("doubling")
class Doubling(StudyBase):
    """`path` at first, 2 · first, 4 · first, …, `count` cells."""

    design: Literal["doubling"]
    path: str
    first: float
    count: int = Field(ge=1, le=20)

    def points(self) -> list[Point]:
        cells = [{self.path: self.first * 2**i} for i in range(self.count)]
        return [Point(build_cell_name(values), values, values, "path") for values in cells]

    def notes(self) -> list[str]:
        return [f"up to {self.first * 2 ** (self.count - 1):g}"]
