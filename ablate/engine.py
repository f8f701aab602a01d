"""Plan → facts: one `Tuner.fit()` for the whole sweep, around the ledger.

The driver owns the ledger and the tracker; workers know neither, nor does the process that has Ray
(`ablate.supervisor`). If the ledger has everything, Ray is not even started.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from ablate.before import as_it_is, check_inputs
from ablate.data_check import check_data
from ablate.dispatch import Dispatch
from ablate.facts import Facts
from ablate.full_disk import room
from ablate.job_settings import JobSettings
from ablate.ledger import Ledger
from ablate.owner import HEARTBEAT_SECONDS, Owner
from ablate.plan import Plan
from ablate.progress import Board
from ablate.progression import Progression
from ablate.resources import Request
from ablate.signals import stop_signals
from ablate.sources import Sources
from ablate.supervisor import Supervisor

TRACKER_SECONDS = 60.0  # that a sweep's first trial waits for a store to be opened
log = logging.getLogger("ablate.engine")
RUNNER = "trainables.job:run_job"  # what a worker does with a job, unless it is told


class Tracking(Protocol):
    """What the engine wants of `ablate.tracking.Tracker`."""

    def start(self, *, wait: bool = True) -> None: ...
    def ready(self, timeout: float | None = None) -> bool: ...
    def notify(self, trial_id: str) -> None: ...
    def close(self, status: Any) -> bool: ...


@dataclass(frozen=True)
class Settings:
    """How a plan is run. None of it is part of a trial's identity.

    budget: seconds after which no new trial starts. evaluator: name of the evaluation code
    whose results count; None: any. tracking_uri None: no MLflow. replay: the command that writes
    to it what a run could not. reads_data: whether the runner reads the data that trials name,
    which is then looked at before the first of them. sources: whether it runs the code of this
    package and of those that join it, whose source is then kept with each trial. same_code: what
    other code made is taken as made by this.
    """

    out: Path
    cache: Path
    request: Request
    runner: str = RUNNER
    evaluator: str | None = None
    address: str | None = None
    budget: float | None = None
    retry_failed: bool = False
    force: bool = False
    same_code: bool = False
    sources: bool = False
    tracking_uri: str | None = field(default=None, repr=False)
    replay: str = "`ablate ledger replay`"
    checkpoint_seconds: float = 10.0
    reads_data: bool = False
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def ledger(self) -> Path:
        return self.out / "ledger.sqlite"

    def facts(self, ledger: Ledger) -> Facts:
        return Facts(
            ledger, self.evaluator, retry_failed=self.retry_failed, force=self.force,
            sources=Sources(ledger) if self.sources else None,
        )  # fmt: skip

    def jobs(self, plan: Plan) -> JobSettings:
        return JobSettings(
            trials=(self.out / "trials").resolve(),
            cache=self.cache.resolve(),
            device=self.request.device,
            threads=self.request.threads,
            runner=self.runner,
            clean=plan.spec.checkpoints == "clean",
            checkpoint_seconds=self.checkpoint_seconds,
            run=uuid.uuid4().hex,
        )


@dataclass(frozen=True)
class Outcome:
    """How a run of a sweep ended.

    missing: cells × seeds without a result, by study. failed: likewise, with a failure as
    their fact. lost: trial → why the machine could not finish it. blocked: study → why it
    cannot go on.
    interrupted: the signal that stopped the run, if one did.
    broken: why Ray could not go on; empty: it could.
    tracked: whether MLflow has everything; if not, tables lack what the ledger has.
    same: what was taken as the same code because somebody said so, a line per component.
    """

    sweep_id: str
    trained: int
    missing: dict[str, int]
    failed: dict[str, int]
    lost: dict[str, str]
    blocked: dict[str, str]
    interrupted: int | None
    out_of_time: bool
    tracked: bool = True
    same: tuple[str, ...] = ()
    broken: str = ""

    @property
    def finished(self) -> bool:
        return not self.missing

    @property
    def code(self) -> int:
        """As an exit code: 0, all done; 1, something failed or is missing, if only in MLflow;
        128 + n, stopped by signal n."""
        if self.interrupted is not None:
            return 128 + self.interrupted
        return 0 if self.finished and not self.failed and self.tracked else 1


def run_plan(plan: Plan, settings: Settings) -> Outcome:
    """Run everything of a plan that the ledger lacks.

    Raises:
        ConfigError: the ledger is none, the data cannot be read or divided, weights cannot be
            had, or the cluster is too small.
        LedgerError: the ledger cannot be written, or the disk is full; everything recorded is kept.
    """
    owner = Owner.me()
    deadline = None if settings.budget is None else time.monotonic() + settings.budget
    fresh = not settings.ledger.is_file()
    if settings.reads_data and fresh:
        with as_it_is(settings.ledger) as none:
            progression = Progression(plan, settings.facts(none), record=False)
            while progression.advance():
                pass
            check_inputs(plan, progression, settings.cache, settings.request.device)
    with Ledger(settings.ledger) as ledger:
        ledger.release_dead()
        ledger.put_sweep(plan.sweep_id, plan.spec.name, plan.resolved_spec(), settings.provenance)
        dispatch = Dispatch(
            Progression(plan, settings.facts(ledger), record=True),
            ledger, owner, plan.sweep_id, settings.jobs(plan),
            deadline=deadline, retry_failed=settings.retry_failed, force=settings.force,
        )  # fmt: skip
        same = dispatch.agree(same_code=settings.same_code)
        if settings.reads_data and not dispatch.exhausted:
            if not fresh:
                check_inputs(plan, dispatch.progression, settings.cache, settings.request.device)
            check_data(plan, dispatch.progression, settings.cache, dispatch.settings.run)
        tracker = _tracker(plan, settings)
        interrupted: int | None = None
        broken = ""
        status, tracked = "FAILED", True
        try:
            if tracker is not None:
                dispatch.notify = tracker.notify  # it begins with all that the ledger has
            if not dispatch.exhausted:
                with room(settings.out):
                    interrupted, broken = _fit(plan, settings, dispatch, owner, tracker)
            if settings.same_code:  # of cells that have become known since
                same += dispatch.agree(same_code=True)
            outcome = _outcome(plan, dispatch, interrupted, broken)
            status = "FINISHED" if outcome.finished else "KILLED" if interrupted else "FAILED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        finally:
            if tracker is not None:
                tracked = tracker.close(status)
    return replace(outcome, tracked=tracked, same=tuple(same))


def _tracker(plan: Plan, settings: Settings) -> Tracking | None:
    if settings.tracking_uri is None:
        return None
    from ablate.tracking import Tracker

    tracker: Tracking = Tracker(
        settings.ledger, settings.tracking_uri, plan.sweep_id, plan.spec.name,
        remedy=settings.replay,
    )  # fmt: skip
    tracker.start(wait=False)  # it imports MLflow while Ray starts
    return tracker


def _outcome(plan: Plan, dispatch: Dispatch, interrupted: int | None, broken: str) -> Outcome:
    missing, failed, blocked = {}, {}, {}
    for name in plan.order:
        state = dispatch.progression.studies[name]
        settled = sum(map(dispatch.progression.settled, state.cells))
        if settled < state.size:
            missing[name] = state.size - settled
        if state.blocked:
            blocked[name] = state.blocked
        facts = dispatch.progression.facts
        fails = sum(
            c.error is not None or facts[c.trial_id].status == "failed" for c in state.cells
        )
        if fails:
            failed[name] = fails
    return Outcome(
        plan.sweep_id, dispatch.trained, missing, failed, dict(dispatch.lost), blocked,
        interrupted,
        dispatch.out_of_time and bool(missing), broken=broken,
    )  # fmt: skip


def _fit(
    plan: Plan, settings: Settings, dispatch: Dispatch, owner: Owner, tracker: Tracking | None
) -> tuple[int | None, str]:
    """The Tune run; returns the signal that stopped it, if one did, and why Ray could not go on."""
    name = f"{plan.spec.name}-{plan.sweep_id}"
    logs = settings.out.resolve() / "logs"
    scratch = (settings.out / "ray" / f"{os.getpid()}-{plan.sweep_id}").resolve()

    def begun(parallel: float) -> Board:
        if tracker is not None:
            tracker.ready(TRACKER_SECONDS)
        return Board(dispatch, parallel, logs / f"{name}.log")

    supervisor = Supervisor(
        dispatch, settings.address, settings.request, scratch, logs / f"{name}-ray.log", begun
    )
    with stop_signals(dispatch.stop) as caught, heartbeats(settings.ledger, owner):
        try:
            broken = supervisor.run()
        finally:
            try:
                if supervisor.board is not None:
                    supervisor.board.close()
            finally:
                # After Ray is down: no worker writes any more.
                dispatch.interrupt("interrupted" if caught else "its driver stopped")
                shutil.rmtree(scratch, ignore_errors=True)
    return (caught[0] if caught else None), broken


@contextmanager
def heartbeats(path: Path, owner: Owner) -> Iterator[None]:
    """A thread that gives this driver's claims a sign of life."""
    ended = threading.Event()

    def beat() -> None:
        with Ledger(path) as ledger:
            while not ended.wait(HEARTBEAT_SECONDS):
                try:
                    ledger.heartbeat(owner)
                except RuntimeError as error:  # the driver's own writes will tell it louder
                    log.warning("no heartbeat: %s", error)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
