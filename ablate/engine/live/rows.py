"""How far a study is: a row of the board, and its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

# Of a line that is printed: no control characters, and finite times that can be shown.
Name = Annotated[str, Field(pattern=r"^\P{Cc}*$", max_length=4096)]
Seconds = Annotated[float, Field(ge=0, le=253_402_300_799, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**12)]


@dataclass(frozen=True)
class StudyRow:
    """Counts are of cells × seeds. eta: seconds, None if unknown. best: of the first objective."""

    study: Name
    size: Count
    known: Count
    done: Count
    running: Count
    failed: Count
    best: float | None
    eta: Seconds | None
    note: Name

    @property
    def ended(self) -> bool:
        return self.done + self.failed >= self.size


def duration(seconds: float | None) -> str:
    """`1:02:03`, `4:05`, or `?`."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def line(row: StudyRow) -> str:
    best = "-" if row.best is None else f"{row.best:.4f}"
    text = f"{row.study}: {row.done}/{row.size} done, {row.running} running, {row.failed} failed"
    note = f" ({row.note})" if row.note else ""
    return f"{text}, best {best}, left {duration(row.eta)}{note}"
