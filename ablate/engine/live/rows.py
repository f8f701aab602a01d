"""How far a study is: a row of the board, and its words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StudyRow:
    """Counts are of cells × seeds. eta: seconds, None if unknown. best: of the first objective."""

    study: str
    size: int
    known: int
    done: int
    running: int
    failed: int
    best: float | None
    eta: float | None
    note: str

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
