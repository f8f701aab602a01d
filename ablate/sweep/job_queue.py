"""Choose the next job of a sweep and record its events, without Ray.

Every trial is claimed in the ledger before its job is handed out, and every event is written there
before it is reported. If another live driver runs a trial, its result is awaited and used.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ablate.ledger.facts import summarize_differences
from ablate.ledger.ledger import Ledger, Owner
from ablate.plan.plan import Cell
from ablate.search.scheduling import WAIT
from ablate.sweep.progression import Progression
from ablate.sweep.trial_queue import JobSettings, Order, Rank, TrialQueue, build_training_job
from trainables.core.runtime import locate_trial_folder
from trainables.jobs.locked_job import EQUAL_ERRORS, count_equal_errors
from trainables.jobs.request import Job
from trainables.words.errors import ConfigError


@dataclass
class JobQueue:
    """Hand out jobs to workers and record their events.

    Attributes:
        notify: called with a trial after its row in the ledger has changed.
        report_failure: called with a trial and the reason why it has no result.
        deadline: time on the monotonic clock after which no job is handed out.
        retry_failed: run each failed trial once more.
        force: run each trial once more, whatever the ledger has of it.
        lost: trial → why it is given up in this run; another run can resume it.
        trained: number of trials trained to the end.
        walls: study → seconds of each of its jobs.
    """

    progression: Progression
    ledger: Ledger
    owner: Owner
    sweep_id: str
    settings: JobSettings
    notify: Callable[[str], None] = lambda _: None
    report_failure: Callable[[str, str], None] = lambda _, __: None
    deadline: float | None = None
    retry_failed: bool = False
    force: bool = False

    stopping: bool = False
    running: dict[str, Job] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    trained: int = 0
    walls: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare an empty queue, and enqueue the trials of the cells that are known already."""
        self._cells: dict[str, list[Cell]] = {}  # trial → the cells that share it
        self._queue = TrialQueue()
        self._seen: set[str] = set()  # trials that this run has claimed, or found finished
        self._halted: set[str] = set()  # studies that equal errors have stopped
        self._errors: dict[str, Counter[str]] = {}  # study → number of failures by reason
        self._began: dict[str, float] = {}  # trial → start of its job
        self.order = Order(self.progression.plan)
        self.add_new_cells()

    def reconcile_code_versions(self, *, same_code: bool) -> list[str]:
        """Refuse the known cells' results of another version of the code, or accept them."""
        return self.progression.facts.reconcile_code_versions(self._cells, same_code=same_code)

    @property
    def out_of_time(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def waits(self) -> bool:
        """Whether some of the remaining trials are run by another driver."""
        return self._queue.waits

    @property
    def is_exhausted(self) -> bool:
        """Whether no further job will be handed out."""
        if self.stopping or self.out_of_time:
            return True
        return not (self._queue or self.running or self.progression.list_open_searches())

    def claim_next_job(self) -> Job | None:
        """Claim and return the next job; None if there is none now, or ever (`is_exhausted`)."""
        if self.stopping or self.out_of_time:
            return None
        self._queue.release_waiting()
        while True:
            # let searches propose while they outrank the queue, until a proposal needs a job
            fresh = self._request_proposal(self._queue.highest)
            while fresh and not any(cell.trial_id in self._queue for cell in fresh):
                fresh = self._request_proposal(self._queue.highest)
            # claim the first trial; if another driver runs it or it needs no job, try the next one
            trial_id = self._queue.pop_first()
            job = None if trial_id is None else self._claim_trial(trial_id)
            if trial_id is None or job is not None:
                return job

    def _request_proposal(self, above: Rank) -> list[Cell]:
        """Let the search of highest rank propose if it outranks `above`; return the new cells."""
        searches = self.progression.list_open_searches()
        name = max(searches, key=self.order.rank_search, default=None)
        if name is None or self.order.rank_search(name) <= above:
            return []
        fresh = self.progression.proposers[name].propose_one()
        self._register_cells(fresh)
        self.add_new_cells()
        return fresh

    def _claim_trial(self, trial_id: str) -> Job | None:
        """Claim a trial's next job and mark it as running; None if it cannot be claimed now."""
        try:
            job = self._claim_job(self._cells[trial_id])
        except OSError as error:  # the storage cannot be reached
            self._give_up(trial_id, f"the machine: {error}")
            return None
        if isinstance(job, Job):
            self.notify(trial_id)
            self.running[trial_id] = job
            self.progression.mark_running(trial_id, running=True)
            self._began[trial_id] = time.monotonic()
            return job
        if job == "busy":
            self._queue.add_waiting(trial_id, self.order.rank_trial(self._cells[trial_id]))
        elif job == "known":
            self.refresh_trial(trial_id)
        return None

    def _claim_job(self, cells: Sequence[Cell]) -> Job | Literal["busy", "known"] | None:
        """Claim and return the next job of the trial that these cells share.

        Returns:
            The job; "busy" if another driver runs the trial; "known" if the ledger has its result
            or failure; None if it waits for its scheduler or for the folds of its ensemble.

        Raises:
            OSError: The job needs files of a storage that cannot be reached.
        """
        # decide how far to train: to the highest epoch that a scheduler set, None for the end
        progression, trial_id = self.progression, cells[0].trial_id
        decisions = [
            progression.get_decision(cell) for cell in cells if not progression.is_settled(cell)
        ]
        epochs = [decision for decision in decisions if isinstance(decision, int)]
        if None not in decisions and not epochs:  # all are settled, or wait
            return None
        # build the job: training, a further evaluation, or an ensemble of folds
        training = build_training_job(cells, self.settings, progression.facts.sources)
        job = progression.choose_job(cells, training, self.settings.trials)
        if job is None:
            return None  # it is enqueued again when its last fold ends
        job = replace(job, until=None if None in decisions else max(epochs))
        # --force deletes the trial's files in storage; an evaluation fetches them
        is_first = trial_id not in self._seen
        forget = self.settings.forget if self.force and is_first else None
        prepare = forget if job.mode == "train" else self.settings.fetch
        if prepare is not None and not self._prepare_files(job, prepare):
            return "busy"
        # claim it in the ledger
        if job.mode == "train":
            claim = self._claim_training(cells[0], is_first)
        else:
            claim = self._claim_evaluation(cells)
        if claim == "busy":  # --force and --retry-failed hold for the next try, too
            return "busy"
        self._seen.add(trial_id)
        return job if claim == "mine" else "known"

    def _prepare_files(self, job: Job, prepare: Callable[[str], None]) -> bool:
        """Hold a trial and delete or fetch its files in storage; False if another driver holds it.

        The trial is held before it is claimed. A claim deletes earlier results from the ledger, and
        the old files in storage would then be taken for the new result.
        """
        if not self.ledger.hold(job.trial_id, self.owner):
            return False
        try:
            fold_ids = (fold.export.parent.name for fold in job.members)  # names of folders
            for trial_id in (job.trial_id, *fold_ids):
                prepare(trial_id)
        except OSError:
            self.ledger.release_hold(job.trial_id, self.owner)
            raise
        return True

    def _claim_evaluation(self, cells: Sequence[Cell]) -> str:
        """Claim a further evaluation of a finished trial; return the ledger's answer."""
        trial_id = cells[0].trial_id
        claim = self.ledger.claim_evaluation(trial_id, self.owner)
        if claim == "mine":
            self.progression.facts.refresh(trial_id)
            if all(map(self.progression.is_settled, cells)):  # another driver has just finished it
                self.ledger.release(trial_id, "interrupted")  # a "done" trial stays "done"
                return "done"
        return claim

    def _claim_training(self, cell: Cell, is_first: bool) -> str:
        """Claim a trial's training and delete its outdated files; return the ledger's answer."""
        trial_id, sources = cell.trial_id, self.progression.facts.sources
        record = None if sources is None else self.ledger.get_trial(trial_id)
        claim = self.ledger.claim(
            trial_id,
            cell.config_hash,
            cell.seed,
            cell.config,
            self.owner,
            retry_failed=self.retry_failed and is_first,
            force=self.force and is_first,
            source=None if sources is None else sources.get_or_create_key(cell.config),
        )
        if claim == "mine":
            if self.force and is_first:
                shutil.rmtree(
                    locate_trial_folder(self.settings.trials, trial_id), ignore_errors=True
                )
            if sources is not None and record and sources.find_differing(record["source"], ()):
                # A driver with other code left these epochs: the worker starts again from scratch.
                self.ledger.delete_epochs(trial_id)
        return claim

    def claim_job_of(self, trial_id: str) -> Job | None:
        """Claim and return one trial's job out of turn; None if nothing remains to be done."""
        if not self._queue.remove(trial_id):
            return None
        job = self._claim_trial(trial_id)
        if job is None and self._queue.waits:
            raise ConfigError(
                trial_id,
                "another process runs this trial",
                "Wait until that process ends, or end it",
            )
        return job

    def record_events(self, trial_id: str, events: Sequence[Mapping[str, Any]]) -> None:
        """Record the events of a running job in the ledger; the last event may end the job."""
        if trial_id not in self.running:
            return
        # record epochs and the final result
        job, last = self.running[trial_id], events[-1]
        epochs = [event for event in events if event["event"] == "epoch"]
        # Repeat all epochs, since a killed driver or worker may have lost some of their events.
        epochs += last.get("history", [])
        if last["event"] == "final":
            trained = job.mode == "train"
            sources = self.progression.facts.sources
            self.ledger.record_final(
                trial_id,
                last,
                epochs if trained else (),
                trained=trained,
                evaluator=None if sources is None else sources.evaluator,
            )
            self.trained += trained
        elif epochs:
            self.ledger.record_epochs(trial_id, epochs)
        # release a failed or paused trial
        if last["event"] == "failed":
            self.ledger.release(trial_id, "failed", last["reason"])
            self.report_failure(trial_id, last["reason"])
        elif last["event"] == "paused":
            reason = f"paused by its scheduler after epoch {last['epoch']}"
            self.ledger.release(trial_id, "partial", reason)
        self.notify(trial_id)
        if last["event"] != "epoch":
            self._finish_job(trial_id, last)

    def _finish_job(self, trial_id: str, last: Mapping[str, Any]) -> None:
        """Record an ended job's time and faults, then enqueue the cells that can run now."""
        # measure the job's time
        job, studies = self.running.pop(trial_id), self._find_studies(trial_id)
        self.progression.mark_running(trial_id, running=False)
        seconds = time.monotonic() - self._began.pop(trial_id)
        for study in studies:
            self.walls.setdefault(study, []).append(seconds)
        # report a finished trial whose evaluation is incomplete
        facts = self.progression.facts
        facts.refresh(trial_id)
        missing = facts[trial_id].find_missing_evaluations(job.evaluate, job.metrics)
        if missing and last["event"] == "final":  # this run does not evaluate the trial again
            splits = [f"{split}: {', '.join(names) or 'all'}" for split, names in missing.items()]
            self.lost[trial_id] = f"the trial's evaluation lacks {'; '.join(splits)}"
        if last["event"] == "failed" and facts[trial_id].status == "done":
            self.lost[trial_id] = str(last["reason"])  # only its evaluation failed
        # halt studies after equal errors of configuration: their other trials, which would fail
        # too, are left to the next run
        for study in count_equal_errors(self._errors, studies, last):
            state = self.progression.studies[study]
            if sum(map(self.progression.is_settled, state.cells)) < state.size:
                self._halted.add(study)
                reason = f"{EQUAL_ERRORS} equal configuration errors: {last['reason']}"
                state.blocked = f"stopped after {reason}"
                self._queue.keep_only(lambda trial: any(map(self._is_open, self._cells[trial])))
        self.refresh_trial(trial_id)

    def _find_studies(self, trial_id: str) -> set[str]:
        return {cell.study for cell in self._cells[trial_id]}

    def _is_open(self, cell: Cell) -> bool:
        return cell.study not in self._halted and not self.progression.is_settled(cell)

    def requeue(self, trial_id: str, reason: str) -> None:
        """Put a trial first in the queue, to resume it after a machine fault ended its job."""
        if self._abort_trial(trial_id, reason):
            self.progression.facts.refresh(trial_id)
            self._queue.put_first([trial_id])

    def mark_lost(self, trial_id: str, reason: str) -> None:
        """Give up a trial after too many machine faults; another run can resume the trial."""
        if self._abort_trial(trial_id, reason):
            self._give_up(trial_id, reason)

    def _give_up(self, trial_id: str, reason: str) -> None:
        """Note and report that a trial gets no result in this run."""
        self.lost[trial_id] = reason
        self.report_failure(trial_id, reason)

    def _abort_trial(self, trial_id: str, reason: str) -> bool:
        """Release a running trial as interrupted; return False if it is not running."""
        if self.running.pop(trial_id, None) is None:
            return False
        self.progression.mark_running(trial_id, running=False)
        self.ledger.release(trial_id, "interrupted", reason)
        self.notify(trial_id)
        return True

    def stop(self) -> None:
        """Hand out no further job; the caller breaks off running jobs."""
        self.stopping = True

    def interrupt_all(self, reason: str) -> None:
        """Release every running trial as interrupted, so that a later run can resume it."""
        for trial_id in list(self.running):
            self._abort_trial(trial_id, reason)

    def refresh_trial(self, trial_id: str) -> None:
        """Reread a trial from the ledger; enqueue it if needed, and all cells that can run."""
        self.progression.facts.refresh(trial_id)
        self.add_new_cells()
        if trial_id not in self.running:
            cells = self._cells.get(trial_id, [])
            self._enqueue_cells([*cells, *self.progression.list_ensemble_cells(cells)])
        self._enqueue_cells(self.progression.list_ready_cells(), first=True)

    def add_new_cells(self) -> None:
        """Record cells that have become known in the ledger, and enqueue those that need a job."""
        while fresh := self.progression.list_new_cells():
            self._register_cells(fresh)

    def _register_cells(self, fresh: Sequence[Cell]) -> None:
        """Record cells in the ledger, enqueue their trials, and notify of those with a status."""
        self.ledger.put_cells(self.sweep_id, [vars(cell) for cell in fresh])
        for cell in fresh:
            self._cells.setdefault(cell.trial_id, []).append(cell)
            self._queue.raise_rank(cell.trial_id, self.order.rank_trial([cell]))
            if cell.error is not None:
                self._record_invalid_config(cell)
        self._enqueue_cells(fresh)
        for trial_id in dict.fromkeys(cell.trial_id for cell in fresh):
            if self.progression.facts[trial_id].status is not None:
                self.notify(trial_id)

    def _enqueue_cells(self, cells: Sequence[Cell], *, first: bool = False) -> None:
        """Enqueue the trials of cells that need a job, in front if `first` is set."""
        ahead: list[str] = []
        for cell in cells:
            trial_id = cell.trial_id
            is_handled = any(trial_id in group for group in (self._queue, self.running, self.lost))
            if is_handled or not self._is_open(cell):
                continue
            if self.progression.get_decision(cell) == WAIT:
                continue
            if self.progression.facts[trial_id].foreign:  # other code recorded it during this run
                differing = self.progression.facts.differing[trial_id]
                changes = "; ".join(summarize_differences({trial_id: differing}))
                remedy = "Raise the component's REVISION, or start again with --same-code"
                self._give_up(trial_id, f"other code made the record ({changes}). {remedy}")
            elif first:
                ahead.append(trial_id)
            else:
                self._queue.append(trial_id, self.order.rank_trial(self._cells[trial_id]))
        self._queue.put_first(ahead)

    def _record_invalid_config(self, cell: Cell) -> None:
        """Record a cell with an invalid configuration as a failed trial."""
        trial = cell.trial_id, cell.config_hash, cell.seed, cell.config
        if self.ledger.claim(*trial, self.owner) == "mine":
            self.ledger.release(cell.trial_id, "failed", cell.error)
            self.report_failure(cell.trial_id, str(cell.error))
            self.progression.facts.refresh(cell.trial_id)
