"""The designs by name; each has a file of its own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ablate.compare import Compare, Variant
from ablate.components import AddOne, Components, LeaveOneOut
from ablate.factors import Factorial, Grid, OneFactor
from ablate.levels import cell_name
from ablate.promote import Promote
from ablate.searching import Objective, Search
from ablate.study import (
    Arm,
    Around,
    Point,
    Seeds,
    SpecPart,
    StudyBase,
    check_seeds,
    seed_list,
)

__all__ = [
    "DESIGNS", "AddOne", "Arm", "Around", "Compare", "Components", "Factorial", "Grid",
    "LeaveOneOut", "Objective", "OneFactor", "Point", "Promote", "Search", "Seeds", "SpecPart",
    "Study", "StudyBase", "Variant", "cell_name", "check_seeds", "seed_list",
]  # fmt: skip


Study = Annotated[
    Search | Grid | OneFactor | Factorial | Components | LeaveOneOut | AddOne | Compare | Promote,
    Field(discriminator="design"),
]
DESIGNS = (
    "search", "grid", "one_factor", "factorial", "components", "leave_one_out", "add_one",
    "compare", "promote",
)  # fmt: skip
