"""What a free worker is given: the order of the trials, and the claim that makes one this driver's.

Where slots are fewer than trials, a study that others wait for goes before one that none waits
for: else its last rounds stand behind grids that could have filled the slots later, and what
follows it is left for the end, one after the other. Of equals, trials whose backbone trains go
first: the long ones at the end would leave slots idle. The order of a plan alone decides, never how
long something took.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ablate.designs.base import ENSEMBLE, SPLITS
from ablate.ledger.ledger import Claim, Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.sources import Sources
from ablate.plan.plan import Cell, Plan
from ablate.schedulers.base import WAIT
from ablate.sweep.progression import Progression
from ablate.values.paths import has, lookup
from trainables.config.network import BackboneConfig
from trainables.core.runtime import Runtime
from trainables.core.trial_folder import trial_folder
from trainables.jobs.request import Fold, Job, Mode

WAIT_SECONDS = 1.0  # until a trial that another driver had is looked at again
AGAIN_SECONDS = 5.0  # between two tries of a storage that is away
AWAY_SECONDS = 120.0  # that a trial waits for one

Rank = tuple[int, ...]
LAST: Rank = ()
TOP: Rank = (sys.maxsize,)


@dataclass(frozen=True)
class JobSettings:
    """What all jobs of a sweep have in common.

    device: "cpu", "cuda" or "cuda:N". threads: of a trial on the CPU. processes: of a trial.
    runner: `module:function`. clean: whether checkpoints go once a trial has ended.
    checkpoint_seconds: least time between checkpoints.
    stuck_after: seconds without a step, after which a trial's process ends itself; None: never.
    run: a name for this run, whose processes check the cache once between them.
    forget: called with a trial that begins anew, whose files elsewhere must go, and fetch with one
        whose weights are read here, which may lie elsewhere; None: there are none. They raise
        OSError while that is away.
    """

    trials: Path
    cache: Path
    device: str
    threads: int
    runner: str
    clean: bool = True
    checkpoint_seconds: float = 10.0
    run: str | None = None
    processes: int = 1
    forget: Callable[[str], None] | None = None
    fetch: Callable[[str], None] | None = None
    stuck_after: float | None = None

    def runtime(self, trial_id: str) -> Runtime:
        """Return the runtime of one trial's jobs."""
        return Runtime(
            device=self.device,
            threads=self.threads,
            cache_dir=self.cache,
            trial_dir=trial_folder(self.trials, trial_id),
            checkpoint_seconds=self.checkpoint_seconds,
            run=self.run,
            processes=self.processes,
            stuck_after=self.stuck_after,
        )


class JobQueue:
    """The trials that are to be handed out, in their order, and those that another driver has.

    A trial is in it once at most. Of two trials the one of the higher rank comes first, of equals
    the one that came first.
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
        """Whether some of them are in another driver's hands."""
        return bool(self._waiting)

    def is_waiting(self, trial_id: str) -> bool:
        return trial_id in self._waiting

    def append(self, trial_id: str, rank: Rank = LAST) -> None:
        """Add one that is not in it, behind all of its rank."""
        self._ranks[trial_id] = rank
        self._next.setdefault(rank, OrderedDict())[trial_id] = None

    def rise(self, trial_id: str, rank: Rank) -> None:
        """Move one that may be in it behind all of this rank if it was below."""
        if self._ranks.get(trial_id, rank) >= rank:
            return
        if trial_id in self._waiting:
            self._ranks[trial_id] = rank
        elif trial_id not in self._first:
            self._drop(trial_id)
            self.append(trial_id, rank)

    def put_first(self, trial_ids: Sequence[str]) -> None:
        """Put these at its head, in this order."""
        for trial_id in reversed(trial_ids):
            self._drop(trial_id)
            self._ranks[trial_id] = LAST
            self._first[trial_id] = None
            self._first.move_to_end(trial_id, last=False)

    def wait(self, trial_id: str, rank: Rank = LAST) -> None:
        """Add one that another driver has: it comes to the end of its rank after a while."""
        self._ranks[trial_id] = rank
        self._waiting[trial_id] = time.monotonic()

    def look_again(self) -> None:
        """Release those that have waited long enough."""
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
        """Remove and return the first; None: there is none but those that wait."""
        for each in self._in_order():
            if each:
                trial_id = each.popitem(last=False)[0]
                del self._ranks[trial_id]
                return trial_id
        return None

    def take(self, trial_id: str) -> bool:
        """Remove this one out of turn; return False where it is not there, or waits."""
        if trial_id not in self._ranks or trial_id in self._waiting:
            return False
        self._drop(trial_id)
        return True

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Drop all that are not wanted."""
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


class Order:
    """Ranks the trials of a plan.

    Attributes:
        long: the studies whose first trial trains a backbone, as far as a plan knows it.
    """

    def __init__(self, plan: Plan) -> None:
        studies = {name: plan.spec.studies[name] for name in plan.order}
        self._followers = count_followers(
            {name: study.centres() for name, study in studies.items()}
        )
        self.long = set()
        for name, study in studies.items():
            point = study.listed[0] if study.fixed else None
            if _trains(plan.layers(name, point, plan.example(name)).merged):
                self.long.add(name)

    def rank(self, cells: Iterable[Cell]) -> Rank:
        """Return the rank of a trial, by the cells that it stands in; the highest goes first."""
        return max((self._rank(cell) for cell in cells), default=LAST)

    def rank_search(self, study: str) -> Rank:
        """Return the rank of a trial that a search is to propose."""
        return self._followers[study], int(study in self.long)

    def _rank(self, cell: Cell) -> Rank:
        return self._followers.get(cell.study, 0), int(_trains(cell.config))


def _trains(config: Mapping[str, Any]) -> bool:
    """Return whether a trial trains its backbone."""
    path = "backbone.mode"
    mode = lookup(config, path) if has(config, path) else BackboneConfig().mode
    return bool(mode == "finetune")


def count_followers(centres: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Return the longest chain of studies that follow each, every one centred on the one before.

    Args:
        centres: the studies that each is centred on, which come before it.
    """
    depth = dict.fromkeys(centres, 0)
    for name in reversed(depth):
        for centre in centres[name]:
            depth[centre] = max(depth[centre], depth[name] + 1)
    return depth


class Away(Exception):
    """A storage has been away for as long as anything waits; what it said."""


class Storage:
    """The waiting for a storage that is away, and for it alone: other trials go on meanwhile.

    A trial that needs it goes back to the queue. After two minutes of that whatever needs it is
    lost, one trial at a time.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._next = 0.0

    @property
    def waits(self) -> bool:
        """Whether it was away just now."""
        return time.monotonic() < self._next

    def call(self, function: Callable[[str], None], trials: Iterable[str]) -> bool:
        """Call a function with each of the trials; return False where that is to come later.

        Raises:
            Away: it has failed for too long.
        """
        began = time.monotonic()
        try:
            for trial in trials:
                function(trial)
        except OSError as error:
            self._since = began if self._since is None else self._since
            self._next = time.monotonic() + AGAIN_SECONDS
            if time.monotonic() - self._since >= AWAY_SECONDS:
                raise Away(str(error)) from error
            return False
        self._since = None
        return True


def read_by(job: Job) -> list[str]:
    """Return the trials whose weights a job reads."""
    if job.mode == "train":
        return []
    return [job.trial_id, *(each.export.parent.name for each in job.members)]


def training_job(cells: Sequence[Cell], settings: JobSettings, sources: Sources | None) -> Job:
    """Return the job that trains a trial to its end, and reads all that its cells ask for."""
    return Job(
        trial_id=cells[0].trial_id,
        config=cells[0].config,
        seed=cells[0].seed,
        runtime=settings.runtime(cells[0].trial_id),
        evaluate=_in_order(_asked(cells) - {ENSEMBLE}),  # that is a job of its own, later
        metrics=_metrics(cells),
        source=None if sources is None else sources.of_job(cells[0].config),
    )


def _asked(cells: Sequence[Cell]) -> set[str]:
    return {split for each in cells for split in each.evaluate}


def _in_order(splits: set[str]) -> tuple[str, ...]:
    return tuple(each for each in SPLITS if each in splits)


def _metrics(cells: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for each in cells for name in each.metrics))


@dataclass
class Claims:
    """Claims what a trial needs next by the sweep's state.

    retry_failed, force: recorded failures, or all records, do not count the first time that this
    run comes to a trial.
    """

    progression: Progression
    ledger: Ledger
    owner: Owner
    retry_failed: bool = False
    force: bool = False
    _seen: set[str] = field(default_factory=set)
    _storage: Storage = field(default_factory=Storage)

    def take(
        self, cells: Sequence[Cell], settings: JobSettings
    ) -> Job | Away | Literal["busy", "known"] | None:
        """Claim and return the next job of the trial that these cells share.

        Returns:
            "busy": another driver has it, or it needs a storage that is away. `Away`: one that has
            been so for long. "known": the ledger has its result, or its failure.
            None: it is to wait, for its scheduler or for the folds of its ensemble.
        """
        cell, until = cells[0], self._until(cells)
        if until == WAIT:
            return None
        trial_id, facts = cell.trial_id, self.progression.facts
        job = training_job(cells, settings, facts.sources)
        mode: Mode = "train"
        evaluate = set(job.evaluate)
        members: tuple[Fold, ...] = ()
        if facts[trial_id].status == "done":
            mode = "evaluate"
            evaluate = set(facts[trial_id].lacking(_asked(cells), job.metrics))
            if evaluate == {ENSEMBLE}:
                folds = self.progression.ensembles.members(cells, settings.trials)
                if folds is None:
                    return None  # the end of the last of its folds asks again
                mode, members = "ensemble", folds
        if mode != "ensemble":
            evaluate.discard(ENSEMBLE)
        job = replace(job, evaluate=_in_order(evaluate), mode=mode, until=until, members=members)
        forced = self.force and trial_id not in self._seen
        needed = settings.fetch if mode != "train" else settings.forget if forced else None
        if needed is not None and (late := self._late(job, needed)):
            return late
        claim = self._training(cell, settings) if mode == "train" else self._evaluation(cells)
        self._seen.add(trial_id)
        if claim != "mine":
            return "busy" if claim == "busy" else "known"
        return job

    def _late(self, job: Job, needed: Callable[[str], None]) -> Literal["busy"] | Away | None:
        """Do what a job needs in a storage, as the trial's holder; return None once it is done.

        This comes before its claim: what the ledger has forgotten and a storage has not would be
        found there as the new result.
        """
        if self._storage.waits:
            return "busy"
        if not self.ledger.hold(job.trial_id, self.owner):
            self._seen.add(job.trial_id)
            return "busy"
        done: bool | Away = False
        try:
            done = self._storage.call(needed, read_by(job) or [job.trial_id])
        except Away as error:
            done = error
        finally:
            if done is not True:
                self.ledger.let_go(job.trial_id, self.owner)
        return done if isinstance(done, Away) else None if done else "busy"

    def _evaluation(self, cells: Sequence[Cell]) -> Claim:
        trial_id = cells[0].trial_id
        claim = self.ledger.claim_evaluation(trial_id, self.owner)
        if claim == "mine":
            self.progression.facts.refresh(trial_id)
            if all(map(self.progression.settled, cells)):  # another driver has just done it
                self.ledger.release(trial_id, "interrupted")
                return "done"
        return claim

    def _training(self, cell: Cell, settings: JobSettings) -> Claim:
        trial_id, sources = cell.trial_id, self.progression.facts.sources
        first = trial_id not in self._seen
        before = None if sources is None else self.ledger.trial(trial_id)
        claim = self.ledger.claim(
            trial_id,
            cell.config_hash,
            cell.seed,
            cell.config,
            self.owner,
            retry_failed=self.retry_failed and first,
            force=self.force and first,
            source=None if sources is None else sources.key(cell.config),
        )
        if claim != "mine":
            return claim
        if self.force and first:
            shutil.rmtree(trial_folder(settings.trials, trial_id), ignore_errors=True)
        if sources is not None and before is not None and sources.differing(before["source"], ()):
            # A driver with other code was at it and is gone: the worker begins anew as well.
            self.ledger.drop_epochs(trial_id)
        return claim

    def _until(self, cells: Sequence[Cell]) -> int | Literal["wait"] | None:
        """Return how far the cells of a trial want it to train now; None: to its end."""
        wanted = [self.progression.until(c) for c in cells if not self.progression.settled(c)]
        if None in wanted:
            return None
        epochs = [epoch for epoch in wanted if isinstance(epoch, int)]
        return max(epochs) if epochs else WAIT
