"""Plan → facts: one `Tuner.fit()` for the whole sweep, around the ledger.

The driver owns the ledger and the tracker; workers know neither, nor does the process that has Ray
(`ablate.engine.ray.supervisor`). If the ledger has everything, Ray is not even started.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import nullcontext
from dataclasses import replace

from ablate.engine.preflight import as_it_is, check_data, check_inputs
from ablate.engine.presence import Presence, drivers
from ablate.engine.progress import Board, rows
from ablate.engine.ray.session import joined
from ablate.engine.ray.supervisor import Supervisor
from ablate.engine.settings import Outcome, Settings
from ablate.engine.signals import stop_signals
from ablate.ledger.ledger import Ledger, heartbeats
from ablate.ledger.owner import Owner
from ablate.ledger.schema import room
from ablate.plan.plan import Plan
from ablate.plan.resolve import default_settings
from ablate.storage.checkpoints import TrialCheckpoints
from ablate.storage.copies import Copies
from ablate.storage.store import Storage
from ablate.sweep.dispatch import Dispatch
from ablate.sweep.progression import Progression
from ablate.sweep.queue import JobSettings
from ablate.tracking.store import public_environment
from ablate.tracking.sync import EndStatus
from ablate.tracking.tracker import MlflowTracker
from ablate.values.terminal import say


def run_plan(plan: Plan, settings: Settings) -> Outcome:
    """Run everything of a plan that the ledger lacks.

    Raises:
        ConfigError: the ledger is none, the storage does not answer or another machine drives from
            it, the data cannot be read or divided, weights cannot be
            had, or the cluster is too small.
        LedgerError: the ledger cannot be written, or the disk is full; everything recorded is kept.
    """
    owner = Owner.me()
    deadline = None if settings.budget is None else time.monotonic() + settings.budget
    copies = _copies(settings, owner)
    fresh = not settings.ledger.is_file()
    if settings.reads_data and fresh:
        with as_it_is(settings.ledger) as none:
            progression = Progression(plan, settings.facts(none), record=False)
            while progression.advance():
                pass
            check_inputs(plan, progression, settings.cache, settings.request.device)
    with (
        Ledger(settings.ledger) as ledger,
        copies or nullcontext(),
        _checkpoints(settings, ledger) or nullcontext() as checkpoints,
    ):
        ledger.release_dead()
        ledger.put_sweep(plan.sweep_id, plan.spec.name, plan.resolved_spec(), settings.provenance)
        dispatch = Dispatch(
            Progression(plan, settings.facts(ledger), record=True),
            ledger,
            owner,
            plan.sweep_id,
            _with_storage(settings.jobs(plan), checkpoints),
            deadline=deadline,
            retry_failed=settings.retry_failed,
            force=settings.force,
        )
        same = dispatch.agree(same_code=settings.same_code)
        if settings.reads_data and not dispatch.exhausted:
            if not fresh:
                check_inputs(plan, dispatch.progression, settings.cache, settings.request.device)
            check_data(plan, dispatch.progression, settings.cache)
        tracker = _tracker(plan, settings)
        interrupted: int | None = None
        broken = ""
        status: EndStatus = "FAILED"
        tracked = True
        try:
            if tracker is not None:
                dispatch.notify = tracker.notify  # it begins with all that the ledger has
            if not dispatch.exhausted:
                with room(settings.out):
                    interrupted, broken = _fit(plan, settings, dispatch, owner, checkpoints)
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


def _copies(settings: Settings, owner: Owner) -> Copies | None:
    """What copies the ledger to storage; one that is there already has been fetched."""
    if settings.storage is None:
        return None

    def others() -> list[Owner]:
        return [each.owner for each in drivers(settings.out) if each.alive and each.owner != owner]

    copies = Copies(
        Storage(settings.storage),
        settings.ledger,
        owner,
        lambda text: say(text, flush=True),
        others=others,
    )
    copies.join()
    return copies


def _is_alone(settings: Settings) -> bool:
    """Whether trials run on this machine alone."""
    return (joined() or settings.address) in (None, "local")


def _checkpoints(settings: Settings, ledger: Ledger) -> TrialCheckpoints | None:
    """Return what knows of checkpoints in storage, if there is one. Nodes of a cluster work in
    folders of their own then."""
    if settings.storage is None:
        return None
    return TrialCheckpoints(
        Storage(settings.storage),
        ledger,
        settings.trials,
        remote=not _is_alone(settings),
        tell=lambda text: say(text, flush=True),
    )


def _with_storage(jobs: JobSettings, checkpoints: TrialCheckpoints | None) -> JobSettings:
    """Say how trials are forgotten there, and how their weights come to where a job reads them."""
    if checkpoints is None:
        return jobs
    fetch = checkpoints.offer if checkpoints.remote else checkpoints.fetch
    return replace(jobs, forget=checkpoints.forget, fetch=fetch)


def _tracker(plan: Plan, settings: Settings) -> MlflowTracker | None:
    if settings.tracking_uri is None:
        return None

    tracker = MlflowTracker(
        settings.ledger,
        settings.tracking_uri,
        plan.sweep_id,
        plan.spec.name,
        remedy=settings.replay,
        defaults=default_settings(),
    )
    tracker.start()  # it imports MLflow while Ray starts
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
        plan.sweep_id,
        dispatch.trained,
        missing,
        failed,
        dict(dispatch.lost),
        blocked,
        interrupted,
        dispatch.out_of_time and bool(missing),
        broken=broken,
    )


def _fit(
    plan: Plan,
    settings: Settings,
    dispatch: Dispatch,
    owner: Owner,
    checkpoints: TrialCheckpoints | None,
) -> tuple[int | None, str]:
    """The Tune run; returns the signal that stopped it, if one did, and why Ray could not go on."""
    name = f"{plan.spec.name}-{plan.sweep_id}"
    logs = settings.out.resolve() / "logs"
    scratch = (settings.out / "ray" / f"{os.getpid()}-{plan.sweep_id}").resolve()

    def begun(parallel: float) -> Board:
        return Board(dispatch, parallel, logs / f"{name}.log", tell=presence.tell)

    def asked() -> None:
        caught.append(signal.SIGINT)  # as by Ctrl-C
        dispatch.stop()

    log = logs / f"{name}-ray.log"
    supervisor = Supervisor(
        dispatch,
        settings.address,
        settings.request,
        scratch,
        log,
        begun,
        checkpoints,
        None if _is_alone(settings) or not settings.reads_data else plan.fingerprints,
        public_environment(settings.tracking_uri),
    )
    presence = Presence(settings.out, owner, plan.sweep_id, plan.spec.name, asked)
    presence.tell(rows(dispatch, 1), (), None)
    with (
        stop_signals(dispatch.stop) as caught,
        heartbeats(settings.ledger, owner),
        presence,
    ):
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
