"""Where the settings of a recipe come from, as a paper's spec says beside itself.

    paper: detreg
    sources:
      - studies: ["table1_*"]
        rows: ["Ours 512"]
        fields:
          - [method.epsilon, 0.4, "DetReg, Section 5.4"]
        varied:
          - [method.lambda1, [0.01, 0.05], "DetReg, Section 5.4"]

Like `reports/recipe.py`, this imports nothing but pydantic.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel, ConfigDict


class SourceBlock(BaseModel):
    """Settings of the rows and studies that its patterns name (`*` stands for any letters).

    studies, rows: patterns of their names.
    fields: (field, value, source). varied: (field, the values that rows take, source).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    studies: tuple[str, ...]
    rows: tuple[str, ...] = ("*",)
    fields: tuple[tuple[str, Any, str], ...] = ()
    varied: tuple[tuple[str, tuple[Any, ...], str], ...] = ()

    def of(self, studies: Collection[str]) -> bool:
        """Whether it is of any of these studies."""
        return any(fnmatchcase(name, pattern) for name in studies for pattern in self.studies)

    def said(self) -> list[tuple[str, Any, str]]:
        """Both kinds."""
        return [*self.fields, *((field, list(values), why) for field, values, why in self.varied)]
