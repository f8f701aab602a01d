"""Run every combination of the values listed for each path."""

import itertools
import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ablate.designs.base import DESIGNS, HEATMAP, StudyBase
from ablate.designs.factors import check_factors, check_size
from ablate.designs.parts import Point, build_cell_name
from ablate.schedulers.decide import Scheduler
from trainables.words.errors import ConfigError


@DESIGNS.register("grid")
class Grid(StudyBase):
    """Every combination of the listed values; the last path varies fastest.

    grid: values by path. scheduler: that ends cells early.

    Example:
        >>> study = Grid(design="grid", grid={"method.alpha": [0.1, 1], "method.gamma": [0, 1e-5]})
        >>> [point.cell for point in study.points()][:2]
        ['method.alpha=0.1,method.gamma=0', 'method.alpha=0.1,method.gamma=1e-05']
    """

    design: Literal["grid"]
    scheduler: Scheduler | None = None
    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(min_length=1)

    tables: ClassVar[tuple[str, ...]] = (*StudyBase.tables, HEATMAP)

    @model_validator(mode="after")
    def check_size(self) -> "Grid":
        """Refuse a race beside a scheduler, repeated levels, and too many combinations."""
        if self.race is not None and self.scheduler is not None:
            raise ConfigError("", "`race` and `scheduler` exclude each other", "Remove one")
        check_factors(dict(self.grid), "grid")
        check_size(math.prod(map(len, self.grid.values())))
        return self

    def points(self) -> list[Point]:
        """Return a cell for each combination of the listed values."""
        points = []
        for levels in itertools.product(*self.grid.values()):
            values = dict(zip(self.grid, levels, strict=True))
            points.append(Point(build_cell_name(values), values, values, "grid"))
        return points
