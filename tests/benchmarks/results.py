"""One number of a benchmark beside what it is compared with and the bound that it has to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """name: what is measured. base: what it is compared with, by name. All in `unit`.

    The bound is an upper one; `at_least` makes it a lower one. None: a number to be told, no
    promise.
    """

    name: str
    ours: float
    base_name: str
    base: float
    bound: float | None
    unit: str
    at_least: bool = False

    @property
    def ratio(self) -> float:
        return self.ours / self.base if self.base else float("nan")

    @property
    def met(self) -> bool:
        if self.bound is None:
            return True
        return self.ours >= self.bound if self.at_least else self.ours <= self.bound

    def row(self) -> tuple[str, ...]:
        sign = "≥" if self.at_least else "≤"
        kept = (
            ("", "")
            if self.bound is None
            else (f"{sign} {self.bound:.4g} {self.unit}", "met" if self.met else "MISSED")
        )
        return (
            self.name,
            f"{self.ours:.4g} {self.unit}",
            f"{self.base_name} {self.base:.4g} {self.unit}",
            f"×{self.ratio:.2f}",
            *kept,
        )


def table(results: Sequence[Result]) -> str:
    """A line per result, in columns."""
    rows = [("", "ours", "compared with", "ratio", "bound", ""), *(r.row() for r in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
