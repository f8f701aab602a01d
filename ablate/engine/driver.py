"""Run the trials of a plan in one `Tuner.fit()` for the whole sweep.

The driver owns the ledger and the tracker. Neither the workers nor the process that runs Ray
(`ablate.engine.ray.supervisor`) access them. If the ledger has all results, Ray is not started.
"""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from types import FrameType

from ablate.engine.driver_status import DriverStatusFile, list_drivers
from ablate.engine.live_report import refresh_report
from ablate.engine.preflight import check_data, check_inputs, check_sources, preview_progression
from ablate.engine.progress import ProgressDisplay, build_study_rows
from ablate.engine.ray.session import check_folders
from ablate.engine.ray.supervisor import Supervisor
from ablate.engine.settings import Outcome, Settings
from ablate.ledger.ledger import Ledger, send_heartbeats
from ablate.ledger.owner import Owner
from ablate.ledger.schema import convert_disk_full
from ablate.plan.plan import Plan
from ablate.plan.resolve import list_default_settings
from ablate.storage.checkpoints import TrialCheckpoints
from ablate.storage.ledger_backup import LedgerBackup
from ablate.storage.store import Storage
from ablate.sweep.dispatch import JobScheduler
from ablate.sweep.required_inputs import has_undecided_weights
from ablate.tracking.base import EndStatus
from ablate.tracking.sync import MlflowTracker
from ablate.tracking.tracker import TrackerThread
from trainables.words.environment import HUB, RAY, STORAGE, build_public_environment
from trainables.words.terminal import print_text

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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
    backup = _open_ledger_backup(settings, owner)
    # check the code of known results, and inputs, before anything is written
    if settings.sources or settings.reads_data:
        with preview_progression(plan, settings) as progression:
            check_sources(progression, same_code=settings.same_code)
            if settings.reads_data:
                check_inputs(plan, progression, settings.cache, settings.request.device)
    with ExitStack() as stack:
        # open the ledger, and keep copies of it in storage
        ledger = stack.enter_context(Ledger(settings.ledger))
        jobs, checkpoints = settings.build_job_settings(plan), None
        if backup is not None:
            stack.enter_context(backup)
            remote = settings.address is not None  # trials may run on other nodes of a Ray cluster
            checkpoints = TrialCheckpoints(
                backup.storage, ledger, settings.trials, remote=remote, print_line=_print_line
            )
            stack.enter_context(checkpoints)
            # for a further evaluation: upload a trial's files for other nodes, or download them
            fetch = checkpoints.upload_trial if remote else checkpoints.fetch_trial
            jobs = replace(jobs, forget=checkpoints.remove_trial, fetch=fetch)
        # queue the trials of all cells (configurations) that do not depend on missing results
        dispatch = JobScheduler(
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
        accepted = dispatch.reconcile_code_versions(same_code=settings.same_code)
        if not dispatch.is_exhausted:  # some trial has to run
            check_folders(settings.address)
            if settings.reads_data:
                check_data(plan, dispatch.progression, settings.cache)
        threads = _start_trackers(plan, settings, dispatch)
        # run all trials through Ray Tune
        interrupted: int | None = None
        status: EndStatus = "FAILED"
        broken = ""  # why Ray could not continue
        incomplete_trackers: list[str] = []  # names of those that lack trials
        try:
            if not dispatch.is_exhausted:
                with convert_disk_full(settings.out):
                    interrupted, broken = _run_ray_tune(plan, settings, dispatch, checkpoints)
            if settings.same_code:  # also accept results of cells that became known during the run
                accepted += dispatch.reconcile_code_versions(same_code=True)
            dispatch.progression.record_looks()
            # sum up, and choose the status with which trackers end the sweep
            outcome = _build_outcome(plan, dispatch, interrupted, broken)
            status = "FINISHED" if outcome.is_finished else "KILLED" if interrupted else "FAILED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        finally:
            incomplete_trackers = [t.tracker.name for t in threads if not t.close(status)]
    return replace(outcome, incomplete_trackers=tuple(incomplete_trackers), same=tuple(accepted))


def _start_trackers(plan: Plan, settings: Settings, dispatch: JobScheduler) -> list[TrackerThread]:
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
    dispatch.notify = notify_threads
    return threads


def _open_ledger_backup(settings: Settings, owner: Owner) -> LedgerBackup | None:
    """Download a newer ledger from storage; return a context that uploads copies of it."""
    if settings.storage is None:
        return None

    def list_other_drivers() -> list[Owner]:
        alive = [driver.owner for driver in list_drivers(settings.out) if driver.alive]
        return [other for other in alive if other != owner]

    storage = Storage(settings.storage)
    backup = LedgerBackup(
        storage, settings.ledger, owner, _print_line, list_other_drivers=list_other_drivers
    )
    backup.restore_if_newer()
    return backup


def _build_outcome(
    plan: Plan, dispatch: JobScheduler, interrupted: int | None, broken: str
) -> Outcome:
    """Return how a run ended, and how many cells of each study are missing or failed.

    `interrupted` is the signal that stopped the run, `broken` says why Ray could not continue.
    """
    progression = dispatch.progression
    states = {name: progression.studies[name] for name in plan.order}
    # a settled cell is done, failed or stopped early; `size` also counts cells not known yet
    missing = {
        name: state.size - sum(map(progression.is_settled, state.cells))
        for name, state in states.items()
    }
    failed = {name: sum(map(progression.has_failed, state.cells)) for name, state in states.items()}
    outcome = Outcome(
        plan.sweep_id,
        dispatch.trained,
        missing={name: count for name, count in missing.items() if count > 0},
        failed={name: count for name, count in failed.items() if count},
        lost=dict(dispatch.lost),
        blocked={name: state.blocked for name, state in states.items() if state.blocked},
        interrupted=interrupted,
        broken=broken,
    )
    return replace(outcome, out_of_time=dispatch.out_of_time and not outcome.is_finished)


def _run_ray_tune(
    plan: Plan, settings: Settings, dispatch: JobScheduler, checkpoints: TrialCheckpoints | None
) -> tuple[int | None, str]:
    """Run Ray Tune; return (the signal that stopped it or None, why Ray failed or "")."""
    name = f"{plan.spec.name}-{plan.sweep_id}"
    logs = settings.out.resolve() / "logs"
    tune_folder = (settings.out / "ray" / f"{os.getpid()}-{plan.sweep_id}").resolve()

    def stop() -> None:  # for `ablate stop`, as by Ctrl-C; `signals` is set below
        signals.append(signal.SIGINT)
        dispatch.stop()

    def open_display(parallel: int) -> ProgressDisplay:  # `stack` and `status` are set below
        log = logs / f"{name}.log"
        display = ProgressDisplay(dispatch, parallel, log, publish=status.publish)
        return stack.enter_context(closing(display))

    status = DriverStatusFile(settings.out, dispatch.owner, plan.sweep_id, plan.spec.name, stop)
    status.publish(build_study_rows(dispatch, parallel=1), trials=(), slots=None)
    # of this process's secrets, Ray and its workers get those that they need
    needed: tuple[str, ...] = RAY if settings.storage is None else (*RAY, *STORAGE)
    if not settings.reads_data or has_undecided_weights(plan, dispatch.progression):
        needed += HUB
    # nodes of a cluster must have the same data sets as this machine
    needs_data = settings.reads_data and settings.address is not None
    supervisor = Supervisor(
        dispatch,
        settings.address,
        settings.request,
        tune_folder,
        logs / f"{name}-ray.log",
        open_display,
        checkpoints,
        fingerprints=plan.fingerprints if needs_data else None,
        environment=build_public_environment(settings.tracking_uri, needed),
    )
    with ExitStack() as stack:
        signals = stack.enter_context(stop_on_signals(dispatch.stop))
        stack.enter_context(send_heartbeats(dispatch.ledger, dispatch.owner))
        stack.enter_context(status)
        if settings.live_report and settings.tracking_uri is not None:
            log = logs / f"{name}-report.log"
            renewer = refresh_report(settings.tracking_uri, plan.sweep_id, settings.out, log)
            stack.enter_context(renewer)
        stack.callback(shutil.rmtree, tune_folder, ignore_errors=True)
        try:
            broken = supervisor.run()
        finally:  # Ray has ended, so no worker writes any more
            dispatch.interrupt_all("interrupted" if signals else "its driver stopped")
    return (signals[0] if signals else None), broken


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Call `stop` at the first Ctrl-C, SIGTERM or SIGHUP, and abort at the second one.

    A closed terminal sends SIGHUP twice, from the kernel and from the shell, so a second SIGHUP
    does not abort. Output to a closed terminal is discarded. If SIGHUP is ignored already, as under
    `nohup`, it stays ignored.

    Yields:
        A list to which the number of the first signal is added.
    """
    signals: list[int] = []
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]  # those of stdout and stderr

    def discard_output_to_closed_terminal() -> None:
        """Send stdout and stderr to /dev/null if they were terminals and are none any more."""
        for stream in terminals:
            if not os.isatty(stream):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream)
                os.close(null)

    def handle_signal(number: int, _: FrameType | None) -> None:
        """Call `stop` at the first signal; abort at a second one other than SIGHUP."""
        if number == signal.SIGHUP:
            discard_output_to_closed_terminal()
        if not signals:
            signals.append(number)
            stop()
        elif number != signal.SIGHUP:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield signals  # Python lets only the main thread handle signals
        return
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    if handlers[signal.SIGHUP] == signal.SIG_IGN:
        del handlers[signal.SIGHUP]
    for number in handlers:
        signal.signal(number, handle_signal)
    try:
        yield signals
    finally:
        discard_output_to_closed_terminal()  # again: SIGHUP may precede the closing
        for number, handler in handlers.items():
            signal.signal(number, handler)
