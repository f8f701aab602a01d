"""Run jobs in this process, without Ray: those of a sweep, or one cell.

    ablate run SPEC --backend process
    ablate run SPEC --cell STUDY/CELL[@seed[.fold]]

A fault can be found in a debugger, because nothing runs in another process.
"""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ablate.backends.base import BACKENDS, LOST, Backend
from ablate.engine.preflight import check_sources, preview_progression
from ablate.engine.settings import Settings
from ablate.ledger.ledger import Ledger, Owner, send_heartbeats
from ablate.plan.plan import Cell, Plan
from ablate.sweep.job_queue import JobQueue
from ablate.sweep.progression import Progression
from trainables.jobs.locked_job import Event, LockedJob, limit_threads
from trainables.jobs.request import Job
from trainables.words.errors import ConfigError
from trainables.words.messages import check_known, join_words
from trainables.words.terminal import print_text

OPTION = "--cell"
MOST_NAMES = 16  # cells in an error message
POLL_SECONDS = 0.5


@BACKENDS.register("process")
@dataclass
class ThisProcess(Backend):
    """Run one job at a time in this process."""

    _job: Job | None = None
    _locked_job: LockedJob | None = None

    def start(self, job: Job) -> None:
        limit_threads(job.runtime.threads)
        self._job = job

    def receive_events(self) -> Iterator[tuple[str, Sequence[Event]] | None]:
        """Train the job, and yield its events one after the other."""
        while True:
            job = self._job
            if job is None:
                time.sleep(POLL_SECONDS)
                yield None
                continue
            try:
                if self._locked_job is None:
                    clean = self.job_queue.settings.clean
                    self._locked_job = LockedJob(job, self.settings.runner, clean=clean)
                events = self._locked_job.receive_events(patience=0.0)  # returns at least one event
            except OSError as error:
                events = [{"event": LOST, "reason": str(error)}]
            if events[-1]["event"] != "epoch":
                self.stop()
            yield job.trial_id, events

    def stop(self) -> None:
        locked_job, self._locked_job, self._job = self._locked_job, None, None
        if locked_job is not None:
            locked_job.close()


def find_cell(progression: Progression, address: str) -> Cell:
    """Find the cell at `STUDY/CELL[@seed[.fold]]`, by default at its first seed and fold."""
    study, _, name = address.partition("/")
    check_known(OPTION, [study], progression.plan.order, "the study")
    cells: dict[str, Cell] = {}  # by each form of the address: CELL, CELL@seed, CELL@seed.fold
    for cell in progression.studies[study].cells:
        for suffix in ("", f"@{cell.seed}", f"@{cell.seed}.{cell.fold}"):
            cells.setdefault(f"{cell.cell}{suffix}", cell)  # the first seed and fold stay
    if not cells:
        raise ConfigError(OPTION, f"no cell of {study} is known yet", "Run the sweep first")
    if name not in cells:
        names = list(dict.fromkeys(cell.cell for cell in cells.values()))
        raise ConfigError(
            OPTION,
            f"{study} has no cell {name!r}; it has {join_words(names[:MOST_NAMES])}",
            "Give one of them, in quotes if its name has spaces",
        )
    return cells[name]


def run_cell(plan: Plan, settings: Settings, address: str) -> int:
    """Run the trial of one cell in this process, without Ray; return 1 if it failed, else 0."""
    check_known(OPTION, [address.partition("/")[0]], plan.order, "the study")
    owner = Owner.from_this_process()
    # run a failed cell again, because users run one cell to find its fault
    settings = replace(settings, retry_failed=True, force=False)
    with preview_progression(plan, settings) as preview:  # before anything is written
        check_sources(preview, same_code=settings.same_code)

    # what a script starts with `&` ignores this signal, which `interrupt` sends
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:  # also in the middle of an epoch
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with Ledger(settings.ledger) as ledger, send_heartbeats(ledger, owner, interrupt):
        progression, jobs = settings.begin_sweep(plan, ledger), settings.build_job_settings(plan)
        job_queue = JobQueue(progression, ledger, owner, plan.sweep_id, jobs, retry_failed=True)
        cell = find_cell(progression, address)
        for line in job_queue.reconcile_code_versions(same_code=settings.same_code):
            print_text(f"results of another version of the code are accepted: {line}")
        if cell.error is not None:  # its configuration is invalid
            print_text(cell.error)
            return 1
        # train to the last epoch, even if the study's scheduler has paused or stopped the trial
        progression.scheduled_studies.clear()
        if progression.facts[cell.trial_id].status in ("partial", "interrupted"):
            job_queue.refresh_trial(cell.trial_id)
        job = job_queue.claim_job_of(cell.trial_id)
        if job is None:
            row = ledger.get_trial(cell.trial_id) or {}
            print_text(f"trial {cell.trial_id} is {row.get('status')} already, so nothing is run")
            return 0
        print_text(f"{address} is trial {cell.trial_id}; its folder is in {jobs.trials}")
        backend = ThisProcess(plan, settings, job_queue)
        backend.start(job)
        try:
            return _print_events(backend)
        except KeyboardInterrupt:
            ledger.check_file()  # raises what the heartbeats have found
            raise
        finally:
            backend.stop()
            job_queue.interrupt_all("stopped in the foreground")


def _print_events(backend: ThisProcess) -> int:
    """Print and record the events of the job that runs; return the exit code."""
    for message in backend.receive_events():
        if message is None:
            continue
        trial_id, events = message
        last = events[-1]
        if last["event"] == LOST:
            raise OSError(last["reason"])
        backend.job_queue.record_events(trial_id, events)
        for event in events:
            if event["event"] == "epoch":
                metrics = ", ".join(f"{name} {x:.4g}" for name, x in event["metrics"].items())
                print_text(f"epoch {event['epoch']} ({event['seconds']:.2f} s): {metrics}")
        if last["event"] == "failed":
            print_text(last["traceback"], end="")
            return 1
        if last["event"] == "final":
            for split, metrics in last["evaluations"].items():
                texts = [f"{name} {value:.4f}" for name, value in metrics.items()]
                print_text(f"{split}: {', '.join(texts)}")
            return 0
    return 1
