"""Define backends: places where the jobs of a sweep run.

A backend is one class in one file of this folder, or of another package that names its module as an
entry point of `ablate.backends`. `ablate run --backend NAME` uses it:

    @BACKENDS.register("ours")
    class Ours(Backend):
        slots = 4

        def start(self, job): ...           # begin a job, and return at once
        def receive_events(self): ...       # yield (trial, events) as they arrive
        def stop(self): ...                 # end all jobs

A subclass is a dataclass, so that state of its own is a field with a default. A job's last event
is `{"event": "final", **asdict(FinalReport(…))}` (`trainables/core/runtime.py`), or "failed" with
`reason` and `traceback`.

`LockedJob(job, self.settings.runner, clean=…)` runs a job in its trial's folder, in any process
that sees the folder (`ablate/backends/this_process.py` is the shortest example). The driver claims
each job in the ledger before `start`, and records its events. A backend keeps no state that must
survive it: a claim of a driver that is gone is free, and a trial resumes from its checkpoints.

Two ways of running trials claim nothing and are no subclasses, because their jobs outlive the
command: a file of trials (`batch_file`), and tasks of Slurm or of this machine (`slurm`).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ablate.engine.progress import ProgressDisplay
from ablate.engine.settings import Settings
from ablate.ledger.schema import build_disk_full_error, is_disk_full_message
from ablate.plan.plan import Plan
from ablate.storage import TrialFiles
from ablate.sweep.job_queue import JobQueue
from reports.frame import GIVEN_UP
from trainables.core.runtime import locate_trial_folder
from trainables.jobs.locked_job import RETRIES, Event
from trainables.jobs.request import Job
from trainables.words.messages import check_known
from trainables.words.registry import Registry

OPTION = "--backend"
BACKENDS: "Registry[type[Backend]]" = Registry(
    "backends", "ablate.backends", "ablate.backends.ray.supervisor"
)
LOST = "lost"  # a job's last event if the machine ended the job, which is then tried again


@dataclass
class Backend(ABC):
    """Run the jobs of one sweep.

    Args:
        job_queue: hands out jobs, and records their events.
        stored: the files of trials in storage; None if trial folders are the only place.
        open_display: called once with the number of slots, when the first job can start.

    Attributes:
        slots: how many jobs run at once.
        machine_faults: of each unfinished trial, how often the machine ended it.
    """

    plan: Plan
    settings: Settings
    job_queue: JobQueue
    stored: TrialFiles | None = None
    open_display: Callable[[int], ProgressDisplay] | None = None
    display: ProgressDisplay | None = None
    machine_faults: Counter[str] = field(default_factory=Counter)
    slots: ClassVar[int] = 1

    @classmethod  # noqa: B027 - most backends have nothing to check
    def check_usable(cls, settings: Settings) -> None:
        """Raise ConfigError if this machine cannot run jobs; called before the first one."""

    @abstractmethod
    def start(self, job: Job) -> None:
        """Begin a job in its trial's folder, and return at once."""

    @abstractmethod
    def receive_events(self) -> Iterator[tuple[str, Sequence[Event]] | None]:
        """Yield a trial and its next events as they arrive, and None at least every half second.

        The last event of a job is "final", "paused" or "failed" (see `run_job`), or "lost" with a
        `reason` if the machine ended the job.
        """

    @abstractmethod
    def stop(self) -> None:
        """End all jobs; nothing writes to their folders any more."""

    def run(self) -> str:
        """Run all jobs until none is left or the run is stopped.

        Returns:
            Why the backend could not continue; "" if it could.

        Raises:
            LedgerError: the ledger cannot be written, or the disk is full.
        """
        self.begin_display(self.slots)
        try:
            self._start_jobs()
            for message in self.receive_events():
                self.refresh()
                if message is not None:
                    self.record_events(*message)
                self._start_jobs()
                is_idle = self.job_queue.is_exhausted and not self.job_queue.running
                if is_idle or self.job_queue.stopping:
                    break
        finally:
            self.stop()
        return ""

    def begin_display(self, slots: int) -> None:
        """Open the display when the first job can start."""
        if self.display is None and self.open_display is not None:
            self.display = self.open_display(slots)

    def refresh(self) -> None:
        """Check the ledger's file, and refresh the display; call it at least every half second."""
        self.job_queue.ledger.check_file()
        if self.display is not None:
            self.display.refresh()

    def _start_jobs(self) -> None:
        """Claim and start jobs while slots are free."""
        while len(self.job_queue.running) < self.slots:
            job = self.job_queue.claim_next_job()
            if job is None:
                return
            self.start(job)

    def record_events(self, trial_id: str, events: Sequence[Event]) -> None:
        """Record events of a job; after its end, let the storage download its results."""
        if events[-1]["event"] == LOST:
            self._retry_or_give_up(trial_id, f"the machine: {events[-1]['reason']}")
            return
        self.job_queue.record_events(trial_id, events)
        if trial_id not in self.job_queue.running:  # the last event has ended the trial
            del self.machine_faults[trial_id]
            if self.stored is not None:
                self.stored.finish_trial(trial_id)

    def _retry_or_give_up(self, trial_id: str, reason: str) -> None:
        """Requeue a trial that the machine ended, or after `RETRIES` retries give the trial up."""
        self.machine_faults[trial_id] += 1
        attempts = self.machine_faults[trial_id]
        if attempts <= RETRIES:
            self.job_queue.requeue(trial_id, reason)
        elif is_disk_full_message(reason):
            folder = locate_trial_folder(self.job_queue.settings.trials, trial_id)
            raise build_disk_full_error(folder)  # which ends the run
        else:
            del self.machine_faults[trial_id]
            self.job_queue.mark_lost(trial_id, f"{reason} ({GIVEN_UP} {attempts} attempts)")


def find_backend(name: str) -> type[Backend]:
    """Return the backend of a name; raise ConfigError with all names if there is none."""
    check_known(OPTION, [name], list(BACKENDS), "the backend")
    return BACKENDS[name]
