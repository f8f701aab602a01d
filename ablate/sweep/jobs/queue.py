"""The trials that are to be handed out, in their order, and those that another driver has."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

WAIT_SECONDS = 1.0  # until a trial that another driver had is looked at again


class JobQueue:
    """A trial is in it once at most; it is asked of far more than read."""

    def __init__(self) -> None:
        self._next: OrderedDict[str, None] = OrderedDict()
        self._waiting: dict[str, float] = {}  # since when, by the monotonic clock

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._next or trial_id in self._waiting

    def __bool__(self) -> bool:
        return bool(self._next or self._waiting)

    @property
    def waits(self) -> bool:
        """Some of them are in another driver's hands."""
        return bool(self._waiting)

    def is_waiting(self, trial_id: str) -> bool:
        return trial_id in self._waiting

    def append(self, trial_id: str) -> None:
        self._next[trial_id] = None

    def put_first(self, trial_ids: Sequence[str]) -> None:
        """These at its head, in this order."""
        for trial_id in reversed(trial_ids):
            self._next[trial_id] = None
            self._next.move_to_end(trial_id, last=False)

    def wait(self, trial_id: str) -> None:
        """Another driver has it: it comes back to the end of the queue after a while."""
        self._waiting[trial_id] = time.monotonic()

    def look_again(self) -> None:
        """Those that have waited long enough can be handed out."""
        now = time.monotonic()
        for trial_id in [t for t, at in self._waiting.items() if now - at >= WAIT_SECONDS]:
            del self._waiting[trial_id]
            self.append(trial_id)

    @property
    def ready(self) -> list[str]:
        """All that can be handed out now, in their order."""
        return list(self._next)

    def pop(self) -> str | None:
        """The first, which then is in it no more; None: there is none but those that wait."""
        return self._next.popitem(last=False)[0] if self._next else None

    def take(self, trial_id: str) -> bool:
        """This one out of turn; False: it is not there, or waits."""
        if trial_id not in self._next:
            return False
        del self._next[trial_id]
        return True

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Drop all others."""
        for trial_id in [t for t in (*self._next, *self._waiting) if not wanted(t)]:
            self._next.pop(trial_id, None)
            self._waiting.pop(trial_id, None)
