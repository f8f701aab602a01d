"""The designs by name; each has a file of its own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ablate.compare import Compare
from ablate.components import AddOne, Components, LeaveOneOut
from ablate.factors import Factorial, Grid, OneFactor
from ablate.promote import Promote
from ablate.searching import Search

Study = Annotated[
    Search | Grid | OneFactor | Factorial | Components | LeaveOneOut | AddOne | Compare | Promote,
    Field(discriminator="design"),
]
DESIGNS = (
    "search", "grid", "one_factor", "factorial", "components", "leave_one_out", "add_one",
    "compare", "promote",
)  # fmt: skip
