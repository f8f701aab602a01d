"""The order in which trials are handed to free workers.

Studies that others wait for go first, since their followers would otherwise run one after the other
at the end. Among equals, trials whose backbone trains go first, since long trials at the end would
leave workers idle. The order depends only on the plan, never on measured times.
"""

import heapq
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.designs.base import ENSEMBLE, SPLITS
from ablate.ledger.facts import Sources
from ablate.plan.plan import Cell, Plan
from trainables.config.network import BackboneConfig
from trainables.core.runtime import Runtime, locate_trial_folder
from trainables.jobs.request import Job
from trainables.words.paths import find_at

WAIT_SECONDS = 1.0  # until a trial that another driver runs is tried again

Rank = tuple[int, ...]
Entry = tuple[Rank, int, str]  # (negated rank, number, trial); the smallest goes first
LAST: Rank = (-1,)
TOP: Rank = (sys.maxsize,)


@dataclass(frozen=True)
class JobSettings:
    """The settings that all jobs of a sweep share.

    Attributes:
        trials: folder of the trials' folders.
        runtime: runtime of every trial, apart from its folder.
        runner: the function that runs a job, as `module:function`.
        clean: whether to delete checkpoints once a trial has ended.
        forget: deletes a trial's files in storage; None without storage. Raises OSError while the
            storage cannot be reached, as `fetch` does.
        fetch: downloads a trial's files from storage.
    """

    trials: Path
    runtime: Runtime
    runner: str
    clean: bool = True
    forget: Callable[[str], None] | None = None
    fetch: Callable[[str], None] | None = None

    def build_runtime(self, trial_id: str) -> Runtime:
        return replace(self.runtime, trial_dir=locate_trial_folder(self.trials, trial_id))


class TrialQueue:
    """A queue of trials by rank, then by arrival; trials of other drivers wait in it."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._entries: dict[str, Entry] = {}  # trial → its valid entry
        self._heap: list[Entry] = []  # entries that do not wait; some are stale
        self._waiting: dict[str, float] = {}  # trial → since when, on the monotonic clock

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._entries

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def waits(self) -> bool:
        """Whether another driver runs some of the trials."""
        return bool(self._waiting)

    def append(self, trial_id: str, rank: Rank = LAST) -> None:
        """Add a trial behind all others of its rank, or move it there."""
        entry = self._entries[trial_id] = _negate_rank(rank), next(self._numbers), trial_id
        if trial_id not in self._waiting:
            heapq.heappush(self._heap, entry)

    def raise_rank(self, trial_id: str, rank: Rank) -> None:
        """Move a trial of the queue behind all others of this rank if it ranks lower."""
        if trial_id in self._entries and self._entries[trial_id][0] > _negate_rank(rank):
            self.append(trial_id, rank)

    def put_first(self, trial_ids: Sequence[str]) -> None:
        """Put trials at the head of the queue, in the order of `trial_ids`."""
        for trial_id in reversed(trial_ids):  # reversed: a later entry has a lower number
            self._waiting.pop(trial_id, None)
            entry = self._entries[trial_id] = _negate_rank(TOP), -next(self._numbers), trial_id
            heapq.heappush(self._heap, entry)

    def add_waiting(self, trial_id: str, rank: Rank = LAST) -> None:
        """Add a trial that another driver runs; `release_waiting` makes it available later."""
        self._waiting[trial_id] = time.monotonic()
        self.append(trial_id, rank)

    def release_waiting(self) -> None:
        """Make trials available that have waited for `WAIT_SECONDS`."""
        now = time.monotonic()
        for trial_id, since in list(self._waiting.items()):
            if now - since < WAIT_SECONDS:
                continue
            del self._waiting[trial_id]
            self.append(trial_id, _negate_rank(self._entries[trial_id][0]))  # undo the sign

    @property
    def highest(self) -> Rank:
        """The rank of the next trial; trials put first rank above all others."""
        self._drop_stale()
        return _negate_rank(self._heap[0][0]) if self._heap else LAST

    def pop_first(self) -> str | None:
        """Remove and return the first trial; None if the queue is empty or all trials wait."""
        self._drop_stale()
        if not self._heap:
            return None
        trial_id = heapq.heappop(self._heap)[2]
        del self._entries[trial_id]
        return trial_id

    def remove(self, trial_id: str) -> bool:
        """Remove a trial out of turn; return False if it is not in the queue, or waits."""
        return trial_id not in self._waiting and self._entries.pop(trial_id, None) is not None

    def keep_only(self, wanted: Callable[[str], bool]) -> None:
        """Drop all trials for which `wanted` returns False."""
        for trial_id in [trial_id for trial_id in self._entries if not wanted(trial_id)]:
            del self._entries[trial_id]
            self._waiting.pop(trial_id, None)

    def _drop_stale(self) -> None:
        while self._heap and self._entries.get(self._heap[0][2]) != self._heap[0]:
            heapq.heappop(self._heap)


def _negate_rank(rank: Rank) -> Rank:
    return tuple(-part for part in rank)


class Order:
    """Rank the trials of a plan by the studies that wait for theirs, then by length."""

    def __init__(self, plan: Plan) -> None:
        self._followers = count_followers(
            {name: plan.spec.studies[name].find_base_studies() for name in plan.order}
        )

    def rank_trial(self, cells: Iterable[Cell]) -> Rank:
        """Return the highest rank of the cells that share a trial; the highest goes first."""
        ranks = []
        for cell in cells:
            mode = find_at(cell.config, "backbone.mode") or BackboneConfig().mode
            ranks.append((self._followers.get(cell.study, 0), int(mode != "frozen")))
        return max(ranks, default=LAST)

    def rank_search(self, study: str) -> Rank:
        """Return the rank of a search's next proposal, the lowest of its study."""
        return self._followers[study], 0


def count_followers(centres: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Map each study to the length of the longest chain of studies that wait for its results.

    Args:
        centres: study → the studies whose results it needs, which precede it in the mapping.
    """
    depth = dict.fromkeys(centres, 0)
    for name in reversed(depth):
        for needed in centres[name]:
            depth[needed] = max(depth[needed], depth[name] + 1)
    return depth


def build_training_job(
    cells: Sequence[Cell], settings: JobSettings, sources: Sources | None
) -> Job:
    """Build the job that trains a trial to its end and evaluates all splits of its cells."""
    splits = {split for cell in cells for split in cell.evaluate}
    return Job(
        trial_id=cells[0].trial_id,
        config=cells[0].config,
        seed=cells[0].seed,
        runtime=settings.build_runtime(cells[0].trial_id),
        # An ensemble is a separate job, after all folds.
        evaluate=tuple(name for name in SPLITS if name in splits and name != ENSEMBLE),
        metrics=tuple(dict.fromkeys(name for cell in cells for name in cell.metrics)),
        source=None if sources is None else sources.collect_job_sources(cells[0].config),
    )
