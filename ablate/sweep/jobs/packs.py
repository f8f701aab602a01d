"""Which trials share a slot: trials that train side by side as one program (`trainables/packs`).

Any of one shape may, for what a trial comes to does not depend on its neighbours. They are taken as
the queue has them, so that the order of a sweep stays what it is. A trial that was in a pack which
the machine has ended is alone in its next: one that kills its process takes others with it once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablate.ledger.facts import Facts
from ablate.plan.cell import Cell
from ablate.sweep.jobs.queue import JobQueue
from trainables.errors import ConfigError
from trainables.jobs.request import Job
from trainables.packs.shape import check_packs, pack_shape
from trainables.trial import TrialConfig


def slots(config: Mapping[str, Any]) -> int:
    """Trials that share one slot with this one, itself included."""
    return config["training"].get("packed") or 1


@dataclass
class Packs:
    """Forms packs, and knows those that are under way.

    cells: of each trial. facts: which of them have trained.
    claim: one trial's job, its own from then on; None: there is none, or not now. demand: one more
    proposal of one of these searches, if it waits for no results; empty: there is none.
    packer: whether the runner has a function for packs.

    Attributes:
        alone: trials that share no slot until they have ended, or are paused.
    """

    queue: JobQueue
    cells: Mapping[str, Sequence[Cell]]
    facts: Facts
    claim: Callable[[str], Job | None]
    demand: Callable[[Collection[str]], Sequence[Cell]]
    packer: bool
    alone: set[str] = field(default_factory=set)
    _shapes: dict[str, str | None] = field(default_factory=dict)  # by hash of the configuration
    _under_way: dict[str, dict[str, None]] = field(default_factory=dict)
    _slot: dict[str, str] = field(default_factory=dict)  # trial → its pack
    _count: int = 0

    def beside(self, job: Job) -> list[Job]:
        """Jobs that share the slot of this one, all claimed, in the queue's order.

        Its search, if it waits for no results, is asked until the slot is full or a proposal does
        not fit: that is the next slot's, and no other is asked for while it waits.
        """
        if not self.packer or job.mode != "train" or job.trial_id in self.alone:
            return []
        shape, count = self._shape(job.trial_id), slots(job.config)
        found: list[Job] = []
        if shape is None:
            return found
        candidates = self._candidates(job.trial_id, count - 1)
        while len(found) < count - 1 and (trial_id := next(candidates, None)) is not None:
            if trial_id in self.alone or self._shape(trial_id) != shape:
                continue
            if self.facts[trial_id].status != "done" and self.queue.take(trial_id):
                taken = self.claim(trial_id)
                if taken is not None:
                    found.append(taken)
        return found

    def _candidates(self, trial_id: str, room: int) -> Iterator[str]:
        yield from self.queue.ready
        own = {cell.study for cell in self.cells[trial_id]}
        for _ in range(room):
            queued = {cell.study for each in self.queue.ready for cell in self.cells[each]}
            fresh = self.demand(own - queued)
            if not fresh:
                return
            yield from dict.fromkeys(cell.trial_id for cell in fresh)

    def _shape(self, trial_id: str) -> str | None:
        """None: it shares no slot. Short, as there may be many."""
        cell = self.cells[trial_id][0]
        if slots(cell.config) == 1:
            return None
        if cell.config_hash not in self._shapes:
            self._shapes[cell.config_hash] = _shape(cell.config)
        return self._shapes[cell.config_hash]

    # ------------------------------------------------------------ under way

    def begin(self, jobs: Sequence[Job]) -> str:
        """They are handed out together; the word by which their slot is spoken of."""
        if len(jobs) == 1:
            return jobs[0].trial_id
        self._count += 1
        word = f"pack-{self._count}"
        self._under_way[word] = dict.fromkeys(job.trial_id for job in jobs)
        self._slot |= dict.fromkeys(self._under_way[word], word)
        return word

    def __contains__(self, word: str) -> bool:
        return word in self._under_way

    def left(self, word: str) -> list[str]:
        """Its trials that have not ended; of a word of no pack that itself."""
        return list(self._under_way.get(word, (word,)))

    def over(self, word: str, trial_id: str) -> bool:
        """A trial in it has ended; whether all have, so that nothing is known of it any more."""
        left = self._under_way.get(word)
        if left is None:
            return True
        if trial_id in left:
            del left[trial_id], self._slot[trial_id]
        if not left:
            del self._under_way[word]
        return not left

    def broken(self) -> None:
        """Nothing is under way any more."""
        self._under_way.clear()
        self._slot.clear()

    def first(self, trials: Iterable[str], count: int) -> list[str]:
        """Those of these trials, which run, that have one of the first so many slots."""
        seen: dict[str, None] = {}
        found = []
        for trial_id in trials:
            slot = self._slot.get(trial_id, trial_id)
            if slot not in seen and len(seen) == count:
                continue
            seen[slot] = None
            found.append(trial_id)
        return found

    def taken(self, trials: Iterable[str]) -> int:
        """How many slots these trials, which run, have."""
        return len({self._slot.get(trial_id, trial_id) for trial_id in trials})


def _shape(config: Mapping[str, Any]) -> str | None:
    resolved = TrialConfig.model_validate(config)
    try:
        check_packs(resolved)
    except ConfigError:
        return None  # it says so itself, alone
    return hashlib.sha256(pack_shape(resolved).encode()).hexdigest()
