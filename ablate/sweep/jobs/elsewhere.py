"""Trials' files that lie in a storage besides: removed before a trial begins anew, brought before
its weights are read.

A storage that is away is waited for, and nothing waits with it: a trial that needs it goes back to
the queue. After two minutes of that whatever needs it is lost, one trial at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from trainables.jobs.request import Job

AGAIN_SECONDS = 5.0  # between two tries of a storage that is away
AWAY_SECONDS = 120.0  # that a trial waits for one


class Away(Exception):
    """It has been away for as long as anything waits; what it said."""


class Elsewhere:
    """waits: whether it was away just now."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._next = 0.0

    @property
    def waits(self) -> bool:
        return time.monotonic() < self._next

    def done(self, do: Callable[[str], None], trials: Iterable[str]) -> bool:
        """Do this for each of the trials; False: later again.

        Raises:
            Away: it has failed for too long.
        """
        began = time.monotonic()
        try:
            for trial in trials:
                do(trial)
        except OSError as error:
            self._since = began if self._since is None else self._since
            self._next = time.monotonic() + AGAIN_SECONDS
            if time.monotonic() - self._since >= AWAY_SECONDS:
                raise Away(str(error)) from error
            return False
        self._since = None
        return True


def read_by(job: Job) -> list[str]:
    """The trials whose weights a job reads."""
    if job.mode == "train":
        return []
    return [job.trial_id, *(each.export.parent.name for each in job.members)]
