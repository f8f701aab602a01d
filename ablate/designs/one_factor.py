"""Vary one factor at a time around the centre."""

from typing import Literal

from pydantic import Field, model_validator

from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.factors import Levels, check_factors, check_size, expand_level
from ablate.designs.parts import Point, build_cell_name


@DESIGNS.register("one_factor")
class OneFactor(StudyBase):
    """The centre, then each factor's levels with all other factors at the centre.

    factors: as in a factorial.

    A level that equals the centre's is the centre's own trial, trained once. coords: the factor
    and its level; none for the centre.

    Example:
        >>> study = OneFactor(design="one_factor", factors={"method.alpha": [0.1, 1]})
        >>> [point.cell for point in study.points()]
        ['centre', 'method.alpha=0.1', 'method.alpha=1']
    """

    design: Literal["one_factor"]
    factors: dict[str, Levels] = Field(min_length=1)

    @model_validator(mode="after")
    def check_size(self) -> "OneFactor":
        """Refuse repeated levels, paths that two factors set, and too many cells."""
        check_factors(self.factors, "factors")
        check_size(1 + sum(map(len, self.factors.values())))
        return self

    def points(self) -> list[Point]:
        """Return the cell "centre", which changes nothing, then one for each level of a factor."""
        points = [Point("centre", {}, {}, "factors")]
        for factor, levels in self.factors.items():
            for level in levels:
                coords, values = {factor: level}, expand_level(factor, levels, level)
                points.append(Point(build_cell_name(coords), coords, values, "factors"))
        return points
