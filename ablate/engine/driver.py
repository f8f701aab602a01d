"""Run the trials of a plan by a backend, which is Ray unless `--backend` names another.

The driver owns the ledger and the trackers, which neither the workers nor the process that runs Ray
access. If the ledger has all results, no backend is started.
"""

import signal
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

from ablate.backends.base import find_backend
from ablate.engine.driver_status import DriverStatusFile, list_drivers, stop_on_signals
from ablate.engine.live_report import refresh_report
from ablate.engine.preflight import check_data, check_inputs, check_sources, preview_progression
from ablate.engine.progress import ProgressDisplay, build_study_rows
from ablate.engine.settings import Outcome, Settings
from ablate.ledger.ledger import Ledger, Owner, send_heartbeats
from ablate.ledger.schema import convert_disk_full
from ablate.plan.plan import Plan
from ablate.plan.resolve import list_default_settings
from ablate.storage import RunStorage, TrialFiles, find_storage
from ablate.sweep.job_queue import JobQueue
from ablate.tracking.sync import MlflowTracker
from ablate.tracking.tracker import EndStatus, TrackerThread
from trainables.words.terminal import print_text

DRAIN_SECONDS = 15.0  # that the end of a run waits for a tracker that reports do not read
_print_line = partial(print_text, flush=True)


def run_plan(plan: Plan, settings: Settings) -> Outcome:
    """Run the trials of a plan that have no result in the ledger; return how the run ended.

    Raises:
        ConfigError: the ledger, the storage, the data or the weights cannot be used, or the cluster
            is too small.
        RayStartError: Ray does not start, so that no trial has run.
        LedgerError: the ledger cannot be written, or the disk is full; all records are kept.
    """
    owner = Owner.from_this_process()
    deadline = None if settings.budget is None else time.monotonic() + settings.budget
    # download the ledger if the storage (`--storage`) has a newer one
    storage = _open_storage(settings, owner)
    # check the code of known results, and inputs, before anything is written
    if settings.sources or settings.reads_data:
        with preview_progression(plan, settings) as progression:
            check_sources(progression, same_code=settings.same_code)
            if settings.reads_data:
                check_inputs(plan, progression, settings.cache, settings.request.device)
    with ExitStack() as stack:
        # open the ledger, and keep copies of it in storage
        ledger = stack.enter_context(Ledger(settings.ledger))
        jobs, stored = settings.build_job_settings(plan), None
        if storage is not None:
            stored = stack.enter_context(storage.keep(ledger))
            # for a further evaluation: upload a trial's files for other nodes, or download them
            fetch = stored.upload_trial if stored.remote else stored.fetch_trial
            jobs = replace(jobs, forget=stored.remove_trial, fetch=fetch)
        # queue the trials of all cells (configurations) that do not depend on missing results
        job_queue = JobQueue(
            settings.begin_sweep(plan, ledger),
            ledger,
            owner,
            plan.sweep_id,
            jobs,
            deadline=deadline,
            retry_failed=settings.retry_failed,
            force=settings.force,
        )
        # refuse results that another version of the code has made, or accept them (--same-code)
        accepted = job_queue.reconcile_code_versions(same_code=settings.same_code)
        if not job_queue.is_exhausted:  # some trial has to run
            find_backend(settings.backend).check_usable(settings)
            if settings.reads_data:
                check_data(plan, job_queue.progression, settings.cache)
        threads = _start_trackers(plan, settings, job_queue)
        # run all trials
        interrupted: int | None = None
        status: EndStatus = "FAILED"
        broken = ""  # why the backend could not continue
        incomplete_trackers: list[str] = []  # names of those that lack trials
        try:
            if not job_queue.is_exhausted:
                with convert_disk_full(settings.out):
                    interrupted, broken = _run_backend(plan, settings, job_queue, stored)
            if settings.same_code:  # also accept results of cells that became known during the run
                accepted += job_queue.reconcile_code_versions(same_code=True)
            job_queue.progression.record_looks()
            # sum up, and choose the status with which trackers end the sweep
            outcome = _build_outcome(plan, job_queue, interrupted, broken)
            status = "FINISHED" if outcome.is_finished else "KILLED" if interrupted else "FAILED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        finally:
            incomplete_trackers = [t.tracker.name for t in threads if not t.close(status)]
    return replace(outcome, incomplete_trackers=tuple(incomplete_trackers), same=tuple(accepted))


def _start_trackers(plan: Plan, settings: Settings, job_queue: JobQueue) -> list[TrackerThread]:
    """Start a thread for each tracker, and notify it of trials that change; MLflow's is the last.

    MLflow's thread imports MLflow while Ray starts.
    """
    ledger, sweep_id = settings.ledger, plan.sweep_id
    threads = [
        TrackerThread(ledger, tracker, sweep_id, drain_seconds=DRAIN_SECONDS)
        for tracker in settings.trackers
    ]
    if settings.tracking_uri is not None:
        mlflow = MlflowTracker(settings.tracking_uri, settings.replay, list_default_settings())
        threads.append(TrackerThread(ledger, mlflow, sweep_id))

    def notify_threads(trial_id: str) -> None:
        for thread in threads:
            thread.notify(trial_id)

    for thread in threads:
        thread.start()
    job_queue.notify = notify_threads
    return threads


def _open_storage(settings: Settings, owner: Owner) -> RunStorage | None:
    """Prepare the storage of a run, if it has one, and download its ledger if that is newer."""
    if settings.storage is None:
        return None

    def list_other_drivers() -> list[Owner]:
        alive = [driver.owner for driver in list_drivers(settings.out) if driver.alive]
        return [other for other in alive if other != owner]

    storage = find_storage(settings.storage)(
        settings.storage,
        settings.out,
        owner,
        settings.address is not None,  # trials may run on other nodes of a Ray cluster
        _print_line,
        list_other_drivers,
    )
    storage.restore_ledger()
    return storage


def _build_outcome(
    plan: Plan, job_queue: JobQueue, interrupted: int | None, broken: str
) -> Outcome:
    """Return how a run ended, and how many cells of each study are missing or failed.

    `interrupted` is the signal that stopped the run, `broken` says why its backend failed.
    """
    progression = job_queue.progression
    states = {name: progression.studies[name] for name in plan.order}
    # a settled cell is done, failed or stopped early; `size` also counts cells not known yet
    missing = {
        name: state.size - sum(map(progression.is_settled, state.cells))
        for name, state in states.items()
    }
    failed = {name: sum(map(progression.has_failed, state.cells)) for name, state in states.items()}
    outcome = Outcome(
        plan.sweep_id,
        job_queue.trained,
        missing={name: count for name, count in missing.items() if count > 0},
        failed={name: count for name, count in failed.items() if count},
        lost=dict(job_queue.lost),
        blocked={name: state.blocked for name, state in states.items() if state.blocked},
        interrupted=interrupted,
        broken=broken,
    )
    return replace(outcome, out_of_time=job_queue.out_of_time and not outcome.is_finished)


def _run_backend(
    plan: Plan, settings: Settings, job_queue: JobQueue, stored: TrialFiles | None
) -> tuple[int | None, str]:
    """Run all jobs; return (the signal that stopped them or None, why the backend failed or "")."""
    name = f"{plan.spec.name}-{plan.sweep_id}"
    logs = settings.out.resolve() / "logs"

    def stop() -> None:  # for `ablate stop`, as by Ctrl-C; `signals` is set below
        signals.append(signal.SIGINT)
        job_queue.stop()

    def open_display(parallel: int) -> ProgressDisplay:  # `stack` and `status` are set below
        log = logs / f"{name}.log"
        display = ProgressDisplay(job_queue, parallel, log, publish=status.publish)
        return stack.enter_context(closing(display))

    status = DriverStatusFile(settings.out, job_queue.owner, plan.sweep_id, plan.spec.name, stop)
    status.publish(build_study_rows(job_queue, parallel=1), trials=(), slots=None)
    backend = find_backend(settings.backend)(plan, settings, job_queue, stored, open_display)
    with ExitStack() as stack:
        signals = stack.enter_context(stop_on_signals(job_queue.stop))
        stack.enter_context(send_heartbeats(job_queue.ledger, job_queue.owner))
        stack.enter_context(status)
        if settings.live_report and settings.tracking_uri is not None:
            log = logs / f"{name}-report.log"
            renewer = refresh_report(settings.tracking_uri, plan.sweep_id, settings.out, log)
            stack.enter_context(renewer)
        try:
            broken = backend.run()
        finally:  # no worker writes any more
            job_queue.interrupt_all("interrupted" if signals else "its driver stopped")
    return (signals[0] if signals else None), broken
