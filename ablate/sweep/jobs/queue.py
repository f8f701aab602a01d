"""The trials that are to be handed out, in their order, and those that another driver has."""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

WAIT_SECONDS = 1.0  # until a trial that another driver had is looked at again

Rank = tuple[int, ...]
LAST: Rank = ()
TOP: Rank = (sys.maxsize,)


class JobQueue:
    """A trial is in it once at most; it is asked of far more than read.

    Of two trials the one of the higher rank comes first, of equals the one that came first.
    """

    def __init__(self) -> None:
        self._first: OrderedDict[str, None] = OrderedDict()  # whatever their rank
        self._next: dict[Rank, OrderedDict[str, None]] = {}
        self._ranks: dict[str, Rank] = {}  # of all that are in it
        self._waiting: dict[str, float] = {}  # since when, by the monotonic clock

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._ranks

    def __bool__(self) -> bool:
        return bool(self._ranks)

    @property
    def waits(self) -> bool:
        """Some of them are in another driver's hands."""
        return bool(self._waiting)

    def is_waiting(self, trial_id: str) -> bool:
        return trial_id in self._waiting

    def append(self, trial_id: str, rank: Rank = LAST) -> None:
        """One that is not in it, behind all of its rank."""
        self._ranks[trial_id] = rank
        self._next.setdefault(rank, OrderedDict())[trial_id] = None

    def rise(self, trial_id: str, rank: Rank) -> None:
        """One that may be in it, behind all of this rank if it was below."""
        if self._ranks.get(trial_id, rank) >= rank:
            return
        if trial_id in self._waiting:
            self._ranks[trial_id] = rank
        elif trial_id not in self._first:
            self._drop(trial_id)
            self.append(trial_id, rank)

    def put_first(self, trial_ids: Sequence[str]) -> None:
        """These at its head, in this order."""
        for trial_id in reversed(trial_ids):
            self._drop(trial_id)
            self._ranks[trial_id] = LAST
            self._first[trial_id] = None
            self._first.move_to_end(trial_id, last=False)

    def wait(self, trial_id: str, rank: Rank = LAST) -> None:
        """Another driver has it: it comes back to the end of its rank after a while."""
        self._ranks[trial_id] = rank
        self._waiting[trial_id] = time.monotonic()

    def look_again(self) -> None:
        """Those that have waited long enough can be handed out."""
        now = time.monotonic()
        for trial_id in [t for t, at in self._waiting.items() if now - at >= WAIT_SECONDS]:
            del self._waiting[trial_id]
            self.append(trial_id, self._ranks[trial_id])

    @property
    def highest(self) -> Rank:
        """The rank of what is next, of what was put first above all others."""
        return (
            TOP if self._first else max((r for r, each in self._next.items() if each), default=LAST)
        )

    def pop(self) -> str | None:
        """The first, which then is in it no more; None: there is none but those that wait."""
        for each in self._in_order():
            if each:
                trial_id = each.popitem(last=False)[0]
                del self._ranks[trial_id]
                return trial_id
        return None

    def take(self, trial_id: str) -> bool:
        """This one out of turn; False: it is not there, or waits."""
        if trial_id not in self._ranks or trial_id in self._waiting:
            return False
        self._drop(trial_id)
        return True

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Drop all others."""
        for trial_id in [each for each in self._ranks if not wanted(each)]:
            self._drop(trial_id)

    def _in_order(self) -> list[OrderedDict[str, None]]:
        return [self._first, *(self._next[rank] for rank in sorted(self._next, reverse=True))]

    def _drop(self, trial_id: str) -> None:
        rank = self._ranks.pop(trial_id, LAST)
        self._waiting.pop(trial_id, None)
        for each in (self._first, self._next.get(rank)):
            if each is not None:
                each.pop(trial_id, None)
