"""Run the trials of a plan in one `Tuner.fit()` for the whole sweep.

The driver owns the ledger and the tracker. Neither the workers nor the process that runs Ray
(`ablate.engine.ray.supervisor`) access them. If the ledger has all results, Ray is not started.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from ablate.engine.driver_status import DriverStatusFile, list_drivers
from ablate.engine.preflight import check_data, check_inputs, open_ledger_or_empty
from ablate.engine.progress import ProgressDisplay, build_study_rows
from ablate.engine.ray.session import is_local
from ablate.engine.ray.supervisor import Supervisor
from ablate.engine.settings import Outcome, Settings
from ablate.engine.signals import stop_signals
from ablate.ledger.ledger import Ledger, send_heartbeats
from ablate.ledger.owner import Owner
from ablate.ledger.schema import convert_disk_full
from ablate.plan.plan import Plan
from ablate.plan.resolve import list_default_settings
from ablate.storage.checkpoints import TrialCheckpoints
from ablate.storage.ledger_backup import LedgerBackup
from ablate.storage.store import Storage
from ablate.sweep.dispatch import JobScheduler
from ablate.sweep.progression import Progression
from ablate.tracking.store import build_public_environment
from ablate.tracking.sync import EndStatus
from ablate.tracking.tracker import MlflowTracker
from ablate.values.terminal import print_text

_print_line = partial(print_text, flush=True)


def run_plan(plan: Plan, settings: Settings) -> Outcome:
    """Run all trials of a plan whose results the ledger lacks.

    Raises:
        ConfigError: the ledger is damaged, the storage does not answer or is used by another
            machine, data cannot be read or split, weights cannot be fetched, or the cluster is too
            small.
        LedgerError: the ledger cannot be written, or the disk is full; all records are kept.
    """
    owner = Owner.from_this_process()
    deadline = None if settings.budget is None else time.monotonic() + settings.budget
    local = is_local(settings.address)
    # restore a newer ledger from storage
    copies = _open_ledger_backup(settings, owner)
    # check inputs before anything is written
    if settings.reads_data:
        with open_ledger_or_empty(settings.ledger) as known_ledger:
            progression = Progression(plan, settings.open_facts(known_ledger), record=False)
            while progression.list_new_cells():
                pass
            check_inputs(plan, progression, settings.cache, settings.request.device)
    with ExitStack() as stack:
        # open the ledger, and keep copies of it in storage
        ledger = stack.enter_context(Ledger(settings.ledger))
        jobs, checkpoints = settings.build_job_settings(plan), None
        if copies is not None:
            stack.enter_context(copies)
            checkpoints = stack.enter_context(
                TrialCheckpoints(
                    copies.storage, ledger, settings.trials, remote=not local, tell=_print_line
                )
            )
            fetch = checkpoints.fetch_trial if local else checkpoints.upload_trial
            jobs = replace(jobs, forget=checkpoints.remove_trial, fetch=fetch)
        # list the cells that are known
        ledger.release_dead()
        ledger.put_sweep(plan.sweep_id, plan.spec.name, plan.resolve_spec(), settings.provenance)
        dispatch = JobScheduler(
            Progression(plan, settings.open_facts(ledger), record=True),
            ledger,
            owner,
            plan.sweep_id,
            jobs,
            deadline=deadline,
            retry_failed=settings.retry_failed,
            force=settings.force,
        )
        same = dispatch.reconcile_code_versions(same_code=settings.same_code)
        if settings.reads_data and not dispatch.is_exhausted:
            check_data(plan, dispatch.progression, settings.cache)
        # start the thread that writes MLflow
        tracker: MlflowTracker | None = None
        if settings.tracking_uri is not None:
            tracker = MlflowTracker(
                settings.ledger,
                settings.tracking_uri,
                plan.sweep_id,
                remedy=settings.replay,
                defaults=list_default_settings(),
            )
            tracker.start()  # it imports MLflow while Ray starts
        # run all trials through Ray Tune
        interrupted: int | None = None
        status: EndStatus = "FAILED"
        broken, tracked = "", True
        try:
            if tracker is not None:
                dispatch.notify = tracker.notify  # it begins with all that the ledger has
            if not dispatch.is_exhausted:
                with convert_disk_full(settings.out):
                    interrupted, broken = _run_ray_tune(
                        plan, settings, dispatch, checkpoints, local
                    )
            if settings.same_code:  # of cells that have become known since
                same += dispatch.reconcile_code_versions(same_code=True)
            # summarize, and end the MLflow run
            outcome = _build_outcome(plan, dispatch, interrupted, broken)
            status = "FINISHED" if outcome.is_finished else "KILLED" if interrupted else "FAILED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        finally:
            if tracker is not None:
                tracked = tracker.close(status)
    return replace(outcome, tracked=tracked, same=tuple(same))


def _open_ledger_backup(settings: Settings, owner: Owner) -> LedgerBackup | None:
    """Download a newer ledger from storage, and return the context that stores copies of it."""
    if settings.storage is None:
        return None

    def list_others() -> list[Owner]:
        alive = [driver.owner for driver in list_drivers(settings.out) if driver.alive]
        return [other for other in alive if other != owner]

    copies = LedgerBackup(
        Storage(settings.storage), settings.ledger, owner, _print_line, others=list_others
    )
    copies.restore_if_newer()
    return copies


def _build_outcome(
    plan: Plan, dispatch: JobScheduler, interrupted: int | None, broken: str
) -> Outcome:
    missing, failed, blocked = {}, {}, {}
    progression = dispatch.progression
    for name in plan.order:
        state = progression.studies[name]
        unsettled = state.size - sum(map(progression.is_settled, state.cells))
        if unsettled > 0:
            missing[name] = unsettled
        if state.blocked:
            blocked[name] = state.blocked
        failures = [
            cell
            for cell in state.cells
            if cell.error is not None or progression.facts[cell.trial_id].status == "failed"
        ]
        if failures:
            failed[name] = len(failures)
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


def _run_ray_tune(
    plan: Plan,
    settings: Settings,
    dispatch: JobScheduler,
    checkpoints: TrialCheckpoints | None,
    local: bool,
) -> tuple[int | None, str]:
    """Run Tune; return the signal that stopped it, or None, and why Ray could not continue."""
    name = f"{plan.spec.name}-{plan.sweep_id}"
    logs = settings.out.resolve() / "logs"
    scratch = (settings.out / "ray" / f"{os.getpid()}-{plan.sweep_id}").resolve()

    def stop() -> None:
        caught.append(signal.SIGINT)  # as by Ctrl-C
        dispatch.stop()

    presence = DriverStatusFile(settings.out, dispatch.owner, plan.sweep_id, plan.spec.name, stop)
    supervisor = Supervisor(
        dispatch,
        settings.address,
        settings.request,
        scratch,
        logs / f"{name}-ray.log",
        lambda parallel: ProgressDisplay(
            dispatch, parallel, logs / f"{name}.log", tell=presence.publish
        ),
        checkpoints,
        None if local or not settings.reads_data else plan.fingerprints,
        build_public_environment(settings.tracking_uri),
    )
    presence.publish(build_study_rows(dispatch, 1), (), None)
    with (
        stop_signals(dispatch.stop) as caught,
        send_heartbeats(settings.ledger, dispatch.owner),
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
                dispatch.interrupt_all("interrupted" if caught else "its driver stopped")
                shutil.rmtree(scratch, ignore_errors=True)
    return (caught[0] if caught else None), broken
