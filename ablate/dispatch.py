"""Which job is next, and what becomes of its events: the sweep's logic without Ray.

`next_job` claims in the ledger before it hands out; `record` writes every event there
before anyone else hears of it. A trial that another live driver has is waited for, then its
result is used.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ablate.cell import Cell
from ablate.ledger import Claim, Ledger
from ablate.owner import Owner
from ablate.progression import Progression
from ablate.scheduler_base import WAIT
from ablate.sources import summary
from ablate.study import ENSEMBLE
from trainables.errors import ConfigError
from trainables.job_spec import Fold, Job, Mode
from trainables.results import Runtime

WAIT_SECONDS = 1.0
EQUAL_ERRORS = 3  # of configuration, without a success between them: the study stops


@dataclass(frozen=True)
class JobSettings:
    """What all jobs of a sweep have in common.

    device: "cpu", "cuda" or "cuda:N". run: a name for this run, whose processes check the cache
    once between them.
    """

    trials: Path
    cache: Path
    device: str
    threads: int
    runner: str
    clean: bool = True
    checkpoint_seconds: float = 10.0
    run: str | None = None

    def runtime(self, trial_id: str) -> Runtime:
        return Runtime(
            device=self.device,
            threads=self.threads,
            cache_dir=self.cache,
            trial_dir=self.trials / trial_id,
            checkpoint_seconds=self.checkpoint_seconds,
            run=self.run,
        )


@dataclass
class Dispatch:
    """Hands out jobs and records what comes back.

    notify: called with a trial's id after the ledger has something new of it.
    told: called with a trial's id and why it has no result, as soon as that is known.
    deadline: time (monotonic seconds) after which nothing new is handed out.
    """

    progression: Progression
    ledger: Ledger
    owner: Owner
    sweep_id: str
    settings: JobSettings
    notify: Callable[[str], None] = lambda _: None
    told: Callable[[str, str], None] = lambda _, __: None
    deadline: float | None = None
    retry_failed: bool = False
    force: bool = False

    stopping: bool = False
    running: dict[str, Job] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    trained: int = 0
    walls: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._cells: dict[str, list[Cell]] = {}
        self._queue: OrderedDict[str, None] = OrderedDict()  # asked of far more than read
        self._waiting: dict[str, float] = {}
        self._retried: set[str] = set()
        self._errors: dict[str, Counter[str]] = {}  # study → reason
        self._halted: set[str] = set()
        self._began: dict[str, float] = {}
        self.unfold()

    def agree(self, *, same_code: bool) -> list[str]:
        """What becomes of records that other code made (`Facts.agree`), of all cells known yet."""
        return self.progression.facts.agree(self._cells, same_code=same_code)

    # -------------------------------------------------------------- handing out

    @property
    def out_of_time(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def waits(self) -> bool:
        """Some of what is left is in another driver's hands."""
        return bool(self._waiting)

    @property
    def exhausted(self) -> bool:
        """Nothing will be handed out any more."""
        if self.stopping or self.out_of_time:
            return True
        return not (self._queue or self.running or self._waiting or self.progression.wanting())

    def next_job(self) -> Job | None:
        """The next job, claimed; None: none at the moment, or none ever (`exhausted`)."""
        if self.stopping or self.out_of_time:
            return None
        now = time.monotonic()
        for trial_id in [t for t, at in self._waiting.items() if now - at >= WAIT_SECONDS]:
            del self._waiting[trial_id]
            self._queue[trial_id] = None
        while True:
            while self._queue:
                job = self._claim(self._queue.popitem(last=False)[0])
                if job is not None:
                    return job
            fresh = self.progression.demand()
            if not fresh:
                return None
            self._learn(fresh)
            self.unfold()

    def _claim(self, trial_id: str) -> Job | None:
        cells = self._cells[trial_id]
        cell = cells[0]
        fact = self.progression.facts[trial_id]
        asked = {split for cell in cells for split in cell.evaluate}
        metrics = tuple(dict.fromkeys(name for cell in cells for name in cell.metrics))
        until = self._until(cells)
        if until == WAIT:
            return None
        mode: Mode = "evaluate" if fact.status == "done" else "train"
        members: tuple[Fold, ...] = ()
        if mode == "evaluate":
            asked = set(fact.lacking(asked, metrics))
            if asked == {ENSEMBLE}:
                folds = self.progression.ensembles.members(cells, self.settings.trials)
                if folds is None:
                    return None  # the end of the last of its folds asks again
                members = folds
                mode = "ensemble"
            claim = self.ledger.claim_evaluation(trial_id, self.owner)
            if claim == "mine":
                self.progression.facts.refresh(trial_id)
                if all(map(self.progression.settled, cells)):  # another driver has just done it
                    self.ledger.release(trial_id, "interrupted")
                    claim = "done"
        else:
            claim = self._claim_training(cell)
        self._retried.add(trial_id)
        if claim == "busy":
            self._waiting[trial_id] = time.monotonic()
            return None
        if claim != "mine":
            self.reread(trial_id)
            return None
        self.notify(trial_id)
        sources = self.progression.facts.sources
        job = Job(
            trial_id=trial_id,
            config=cell.config,
            seed=cell.seed,
            runtime=self.settings.runtime(trial_id),
            evaluate=(ENSEMBLE,) if members else tuple(s for s in ("val", "test") if s in asked),
            metrics=metrics,
            mode=mode,
            until=until,
            members=members,
            source=None if sources is None else sources.of_job(cell.config),
        )
        self.running[trial_id] = job
        self.progression.leg(trial_id, begins=True)
        self._began[trial_id] = time.monotonic()
        return job

    def _claim_training(self, cell: Cell) -> Claim:
        trial_id, sources = cell.trial_id, self.progression.facts.sources
        first = trial_id not in self._retried
        before = None if sources is None else self.ledger.trial(trial_id)
        claim = self.ledger.claim(
            trial_id, cell.config_hash, cell.seed, cell.config, self.owner,
            retry_failed=self.retry_failed and first, force=self.force and first,
            source=None if sources is None else sources.key(cell.config),
        )  # fmt: skip
        if claim != "mine":
            return claim
        if self.force and first:
            shutil.rmtree(self.settings.trials / trial_id, ignore_errors=True)
        if sources is not None and before is not None and sources.differing(before["source"], ()):
            # A driver with other code was at it and is gone: the worker begins anew as well.
            self.ledger.drop_epochs(trial_id)
        return claim

    def _until(self, cells: Sequence[Cell]) -> int | Literal["wait"] | None:
        """How far the cells of a trial want it to train now; None: to its end."""
        wanted = [self.progression.until(c) for c in cells if not self.progression.settled(c)]
        if None in wanted:
            return None
        epochs = [w for w in wanted if isinstance(w, int)]
        return max(epochs) if epochs else WAIT

    def job_of(self, trial_id: str) -> Job | None:
        """One trial's job out of turn; None where nothing is left to do.

        Raises:
            ConfigError: another live driver has it.
        """
        if trial_id not in self._queue:
            return None
        del self._queue[trial_id]
        job = self._claim(trial_id)
        if job is None and trial_id in self._waiting:
            raise ConfigError(
                trial_id, "a trial that another process is running", "a free one",
                "Wait for it, or end that process",
            )  # fmt: skip
        return job

    # ---------------------------------------------------------------- recording

    def record(self, trial_id: str, events: Sequence[Mapping[str, Any]]) -> None:
        """Events of a running job, in order; the last one may end it."""
        if trial_id not in self.running:
            return
        epochs = [event for event in events if event["event"] == "epoch"]
        last = events[-1]
        if last["event"] in ("final", "paused"):
            # All of them once more: a killed driver or worker may have lost some on the way.
            epochs += last.get("history", [])
        if last["event"] == "final":
            trained = self.running[trial_id].mode == "train"
            sources = self.progression.facts.sources
            self.ledger.record_final(
                trial_id, last, epochs if trained else (), trained=trained,
                evaluator=None if sources is None else sources.evaluator,
            )  # fmt: skip
            self.trained += trained
        elif epochs:
            self.ledger.record_epochs(trial_id, epochs)
        if last["event"] == "failed":
            left = self._behind(trial_id, last)
            self.ledger.release(trial_id, "interrupted" if left else "failed", last["reason"])
            self.told(trial_id, last["reason"])
        elif last["event"] == "paused":
            reason = f"halted by its scheduler after epoch {last['epoch']}"
            self.ledger.release(trial_id, "partial", reason)
        self.notify(trial_id)
        if last["event"] != "epoch":
            job = self.running.pop(trial_id)
            self.progression.leg(trial_id, begins=False)
            wall = time.monotonic() - self._began.pop(trial_id)
            for study in {cell.study for cell in self._cells[trial_id]}:
                # A leg counts as a trial does: only a first look at the time that is left.
                self.walls.setdefault(study, []).append(wall)
            self._lose_what_was_not_told(trial_id, job, last)
            self._count(trial_id, last)
            self.reread(trial_id)

    def _count(self, trial_id: str, last: Mapping[str, Any]) -> None:
        """A study whose trials fail one after the other, each by the same fault of configuration,
        ends here: what it has left would too. It is missing, and the next run goes on with it."""
        for study in {cell.study for cell in self._cells[trial_id]}:
            errors = self._errors.setdefault(study, Counter())
            if last["event"] == "final":
                errors.clear()
            elif _misconfigured(last):
                errors[last["reason"]] += 1
                if errors[last["reason"]] == EQUAL_ERRORS:
                    self._halt(study, last["reason"])

    def _halt(self, study: str, reason: str) -> None:
        state = self.progression.studies[study]
        if sum(map(self.progression.settled, state.cells)) == state.size:
            return  # those were its last
        self._halted.add(study)
        state.blocked = f"stopped after {EQUAL_ERRORS} equal configuration errors: {reason}"
        for trial_id in [*self._queue, *self._waiting]:
            if not any(map(self._open, self._cells[trial_id])):
                self._queue.pop(trial_id, None)
                self._waiting.pop(trial_id, None)

    def _behind(self, trial_id: str, last: Mapping[str, Any]) -> bool:
        """Whether a trial was under way when its studies stopped, and ends as they did: it is one
        of those that the next run goes on with."""
        return _misconfigured(last) and {c.study for c in self._cells[trial_id]} <= self._halted

    def _open(self, cell: Cell) -> bool:
        """Whether a cell's trial is to be handed out for it."""
        return cell.study not in self._halted and not self.progression.settled(cell)

    def _lose_what_was_not_told(self, trial_id: str, job: Job, last: Mapping[str, Any]) -> None:
        """A trial that is done and was not evaluated as asked is not asked again in this run."""
        self.progression.facts.refresh(trial_id)
        fact = self.progression.facts[trial_id]
        missing = fact.lacking(job.evaluate, job.metrics)
        if missing and last["event"] == "final":
            told = [f"{split}: {', '.join(names) or 'all'}" for split, names in missing.items()]
            self.lost[trial_id] = f"its evaluation lacks {'; '.join(told)}"
        elif last["event"] == "failed" and trained_before(self.progression, trial_id):
            self.lost[trial_id] = str(last["reason"])

    def again(self, trial_id: str, reason: str) -> None:
        """A job ended by the machine: it is the next one, from its last checkpoint."""
        if self._break_off(trial_id, reason):
            self.progression.facts.refresh(trial_id)
            self._put_first(trial_id)

    def _put_first(self, trial_id: str) -> None:
        self._queue[trial_id] = None
        self._queue.move_to_end(trial_id, last=False)

    def lose(self, trial_id: str, reason: str) -> None:
        """A job ended by the machine more often than is retried: resumable, not this run."""
        if self._break_off(trial_id, reason):
            self.lost[trial_id] = reason
            self.told(trial_id, reason)

    def _break_off(self, trial_id: str, reason: str) -> bool:
        if self.running.pop(trial_id, None) is None:
            return False
        self.progression.leg(trial_id, begins=False)
        self.ledger.release(trial_id, "interrupted", reason)
        self.notify(trial_id)
        return True

    def stop(self) -> None:
        """Nothing more is handed out, and what runs is broken off."""
        self.stopping = True

    def interrupt(self, reason: str) -> None:
        """The driver stops: every running trial becomes resumable."""
        for trial_id in list(self.running):
            del self.running[trial_id]
            self.ledger.release(trial_id, "interrupted", reason)
            self.notify(trial_id)

    def reread(self, trial_id: str) -> None:
        """Read what the ledger now says of a trial, and go on from there."""
        self.progression.facts.refresh(trial_id)
        self.unfold()
        if trial_id not in self.running:
            cells = self._cells.get(trial_id, [])
            self._enqueue([*cells, *self.progression.ensembles.firsts(cells)])
        self._enqueue(self.progression.ready(), first=True)

    def unfold(self) -> None:
        """Cells that have become known: into the ledger, and into the queue if need be."""
        while fresh := self.progression.advance():
            self._learn(fresh)

    def _learn(self, fresh: Sequence[Cell]) -> None:
        self.ledger.put_cells(self.sweep_id, [vars(cell) for cell in fresh])
        for cell in fresh:
            self._cells.setdefault(cell.trial_id, []).append(cell)
            if cell.error is not None:
                self._fail(cell)
        self._enqueue(fresh)
        for trial_id in dict.fromkeys(cell.trial_id for cell in fresh):
            if self.progression.facts[trial_id].status is not None:
                self.notify(trial_id)

    def _enqueue(self, cells: Sequence[Cell], *, first: bool = False) -> None:
        """Trials of cells that are not settled into the queue; a scheduler's at its head."""
        ahead: list[str] = []
        for cell in cells:
            trial_id = cell.trial_id
            known = trial_id in self._queue or trial_id in self.running or trial_id in self.lost
            if known or trial_id in self._waiting or not self._open(cell):
                continue
            if self.progression.until(cell) == WAIT:
                continue
            if self.progression.facts[trial_id].foreign:
                self._refuse(trial_id)
                continue
            if first:
                ahead.append(trial_id)
            else:
                self._queue[trial_id] = None
        for trial_id in reversed(ahead):
            self._put_first(trial_id)

    def _refuse(self, trial_id: str) -> None:
        """A record of other code that has come to light since the run began."""
        found = summary({trial_id: self.progression.facts.differing[trial_id]})
        self.lost[trial_id] = f"made by other code ({'; '.join(found)}): raise REVISION, or "
        self.lost[trial_id] += "start again with --same-code"
        self.told(trial_id, self.lost[trial_id])

    def _fail(self, cell: Cell) -> None:
        """A configuration that cannot be is a fact too."""
        claim = self.ledger.claim(
            cell.trial_id, cell.config_hash, cell.seed, cell.config, self.owner
        )
        if claim == "mine":
            self.ledger.release(cell.trial_id, "failed", cell.error)
            self.told(cell.trial_id, str(cell.error))
            self.progression.facts.refresh(cell.trial_id)


def _misconfigured(last: Mapping[str, Any]) -> bool:
    """Whether a job's last event tells of an error of configuration."""
    failed = last["event"] == "failed"
    return failed and str(last["reason"]).startswith(ConfigError.__name__)


def trained_before(progression: Progression, trial_id: str) -> bool:
    """Whether a failure hit only the evaluation of a trial that is done."""
    return progression.facts[trial_id].status == "done"
