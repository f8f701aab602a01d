"""What slots did beside training, read off the times of finished trials.

A trial's `seconds` are those of its training; it began to train at `ended` − `seconds`. Its slot
had waited for that since the trial before it in that slot had ended, or, if that was later, since
it was claimed (drivers claim ahead): for a worker's start, for data and network to be built, for
what is written when a trial ends. Which slot it was is not recorded, and need not be for their
mean: the sum of waits is the same whichever end is taken for whichever beginning after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from statistics import fmean, median

from ablate.ledger import queries
from ablate.ledger.records import Records, Row


@dataclass(frozen=True)
class Wait:
    """Of a slot for one trial to begin. followed: another trial before it in that slot, so that no
    worker had to be started."""

    seconds: float
    followed: bool


def mean(waited: Iterable[Wait]) -> float:
    """Of those that followed another trial; of all, where none did; 0 of none."""
    every = list(waited)
    followed = [wait.seconds for wait in every if wait.followed]
    return fmean(followed or [wait.seconds for wait in every] or [0.0])


def began(row: Row) -> float | None:
    """When a trial began to train; None of one that went on from a checkpoint, whose seconds are of
    several attempts, or whose times are not known."""
    if None in (row["started"], row["ended"], row["seconds"]):
        return None
    at = float(row["ended"] - row["seconds"])
    return at if at >= row["started"] else None


def waits(finished: Iterable[Row]) -> dict[str, Wait]:
    """Trial → how long its slot waited for it to begin to train. Slots are taken in the order in
    which they became free; between two drivers, where nothing was claimed, they are forgotten."""
    known = [(at, row) for row in finished if (at := began(row)) is not None]
    found: dict[str, Wait] = {}
    for session in _sessions(known):
        free = sorted((row["ended"] for _, row in session), reverse=True)  # the next one last
        for at, row in sorted(session, key=lambda pair: pair[0]):
            followed = free[-1] <= at
            since = free.pop() if followed else row["started"]
            found[row["trial_id"]] = Wait(at - max(since, row["started"]), followed)
    return found


def _sessions(known: Iterable[tuple[float, Row]]) -> Iterator[list[tuple[float, Row]]]:
    """Trials that were claimed while others had not ended."""
    session: list[tuple[float, Row]] = []
    last = -inf
    for pair in sorted(known, key=lambda pair: pair[1]["started"]):
        if session and pair[1]["started"] > last:
            yield session
            session = []
        session.append(pair)
        last = max(last, pair[1]["ended"])
    if session:
        yield session


def start_up(records: Records, waited: Mapping[str, Wait]) -> float:
    """Seconds from a sweep's beginning to its first trial's training, less what any trial is waited
    for: the median over the ledger's sweeps; 0 without any.

    Args:
        waited: as `waits` finds them.
    """
    usual = mean(waited.values())
    rows = {row["trial_id"]: row for row in queries.finished(records)}
    found = [
        at - first["created"] - usual
        for first in queries.first_starts(records)
        if (at := began(rows[first["trial_id"]])) is not None
    ]
    return max(0.0, median(found)) if found else 0.0
