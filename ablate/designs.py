"""The designs by name, and what varies in a search; the fixed ones have files of their own."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ablate.compare import Compare, Variant
from ablate.components import AddOne, Components, LeaveOneOut
from ablate.factors import Factorial, Grid, OneFactor
from ablate.scheduling import Scheduler
from ablate.space import Axis
from ablate.study import (
    MAX_CELLS,
    Arm,
    Around,
    Point,
    Seeds,
    SpecPart,
    StudyBase,
    cell_name,
    check_seeds,
    seed_list,
)

__all__ = [
    "DESIGNS", "AddOne", "Arm", "Around", "Compare", "Components", "Factorial", "Grid",
    "LeaveOneOut", "OneFactor", "Point", "Search", "Seeds", "SpecPart", "Study", "StudyBase",
    "Variant", "cell_name", "check_seeds", "seed_list",
]  # fmt: skip


class Search(StudyBase):
    """Optuna proposes. Rounds of `round` trials: a round is proposed when all results of the
    rounds before it are known. startup: random trials before TPE models anything."""

    design: Literal["search"]
    sampler: Literal["tpe", "random"] = "tpe"
    trials: int = Field(ge=1, le=MAX_CELLS)
    round: int = Field(4, ge=1)
    startup: int = Field(8, ge=1)
    scheduler: Scheduler | None = None
    space: dict[str, Axis] = Field(min_length=1)

    @model_validator(mode="after")
    def not_raced(self) -> Search:
        if self.race is not None:
            raise ValueError(
                "a scheduler rather than a race in a search, whose rounds wait for every seed"
            )
        return self

    fixed: ClassVar[bool] = False

    @cached_property
    def paths(self) -> tuple[str, ...]:
        return tuple(self.space)


Study = Annotated[
    Search | Grid | OneFactor | Factorial | Components | LeaveOneOut | AddOne | Compare,
    Field(discriminator="design"),
]
DESIGNS = (
    "search", "grid", "one_factor", "factorial", "components", "leave_one_out", "add_one",
    "compare",
)  # fmt: skip
