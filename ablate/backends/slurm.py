"""Submit the trials of a plan that can start, record their results, and go on until none is left.

One submission of an output folder is at work at a time: the next one is submitted when all tasks of
the former have ended and their results are in the ledger. Tasks train in `OUT/trials`, like the
workers of `ablate run`, so that each command continues the other's trials.
"""

import math
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from filelock import FileLock, Timeout

from ablate.backends import submission as record
from ablate.backends.batch_file import import_batch, list_ready_trials, write_entries
from ablate.backends.submission import FOLDER, Submission
from ablate.engine.driver_status import DriverStatusFile, list_drivers, stop_on_signals
from ablate.engine.preflight import check_data, check_inputs, preview_progression
from ablate.engine.settings import Settings
from ablate.ledger.ledger import Ledger, Owner, send_heartbeats
from ablate.ledger.schema import convert_disk_full
from ablate.plan.plan import Plan
from trainables.core.runtime import CHECKPOINTS, RESULT, locate_trial_folder
from trainables.jobs.locked_job import RETRIES
from trainables.jobs.trial_file import RESULT_NAME, Entry, digest
from trainables.machine.devices import resolve_device
from trainables.words.environment import PYTHON
from trainables.words.errors import ConfigError
from trainables.words.terminal import print_text

MOST_TASKS = 1000  # Slurm's default `MaxArraySize` allows the numbers up to 1000
MOST_SECONDS = 30.0  # between two questions for states


@dataclass
class Follower:
    """Submits the trials that can start, and records their results.

    Attributes:
        settings: with `retry_failed`, failed and given-up trials are submitted once more.
        sbatch: arguments of sbatch; None for one task on this machine, without Slurm.
        trials_at_once: how many trials a task runs at the same time.
        limit: how many tasks of Slurm run at once at most; None for no limit.
        stop: set to end the follower; tasks that were started go on.
        collected: number of results recorded.
        given_up: trial → the log of its last task.
        current: the submission that is at work.
    """

    plan: Plan
    settings: Settings
    sbatch: Sequence[str] | None
    trials_at_once: int = 1
    limit: int | None = None

    stop: threading.Event = field(default_factory=threading.Event)
    collected: int = 0
    given_up: dict[str, Path] = field(default_factory=dict)
    current: Submission | None = None
    _activity: str = ""
    _recorded: set[str] = field(default_factory=set)  # trials of the current submission

    def submit(self, *, detach: bool) -> int | None:
        """Check what the trials need, and run; return the signal that ended this process or None.

        Raises:
            ConfigError: another command runs a sweep in the folder, data or weights are missing, or
                as `run`.
        """
        plan, settings, out = self.plan, self.settings, self.settings.out
        with Ledger(settings.ledger):  # refuses a folder that is not writable
            (out / FOLDER).mkdir(exist_ok=True)
        owner, stop = Owner.from_this_process(), self.stop.set
        status = DriverStatusFile(out, owner, plan.sweep_id, plan.spec.name, stop)
        busy = ConfigError(
            "--out",
            "another command runs a sweep in this folder (`ablate status` shows it)",
            "Wait for its end, or give another --out",
        )
        try:
            lock = FileLock(out / FOLDER / "lock").acquire(timeout=0)
        except Timeout:
            raise busy from None
        with lock, convert_disk_full(out):
            if any(driver.alive for driver in list_drivers(out)):
                raise busy
            if settings.reads_data:  # fill the cache, which the tasks share
                device = settings.request.device
                if device == "auto":  # a GPU on Slurm, or else what this machine has
                    device = "cuda" if self.sbatch is not None else resolve_device(device).type
                with preview_progression(plan, settings) as progression:
                    check_inputs(plan, progression, settings.cache, device)
                    check_data(plan, progression, settings.cache)
            with Ledger(settings.ledger) as ledger, send_heartbeats(ledger, owner, stop):
                with stop_on_signals(stop) as signals, status:
                    self.run(detach=detach)
                ledger.check_file()  # heartbeats stop this process if the ledger is of no use
        return next(iter(signals), signal.SIGINT if self.stop.is_set() else None)

    def run(self, *, detach: bool = False) -> None:
        """Follow until nothing can start; with `detach`, return as soon as tasks are at work.

        Raises:
            ConfigError: sbatch refuses a job, a job of another sweep is at work, a result is
                damaged, or Slurm does not answer (only with `detach`).
        """
        self.current, pause = record.find_current(self.settings.out), 1.0  # of a killed command
        while not self.stop.is_set():
            self.current = self.current or self._submit()
            if self.current is None:
                return
            try:
                is_at_work = self._watch(self.current)
            except record.QueryError as error:  # Slurm's controller may be restarting
                if detach:
                    raise
                self._report(str(error))
                is_at_work = True
            if not is_at_work:
                self.current, pause = None, 1.0
            elif detach:
                return
            else:
                self.stop.wait(pause)
                pause = min(1.1 * pause, MOST_SECONDS)

    def describe_rest(self) -> str:
        """Return a text on trials that go on or are given up; "" if there are none."""
        if self.current is not None:
            return f"{self.current} goes on without this command; `ablate status` shows it."
        if self.stop.is_set():
            return "Stopped."
        if self.given_up:
            n_trials, (log, *_) = len(self.given_up), self.given_up.values()
            fault = f"{RETRIES + 1} tasks of each ended without progress (a log: {log})"
            return f"{n_trials} trials are given up: {fault}. Mend it, and give --retry-failed."
        return ""

    def _watch(self, submission: Submission) -> bool:
        """Record new results, and all when the tasks have ended; return whether tasks are left."""
        if not submission.has_job():
            # rename the folder, so that tasks that Slurm creates nevertheless find no trials
            answer = " ".join(submission.read_answer().split())
            submission.folder.rename(f"{submission.folder}.unknown")
            if not answer:  # the command was killed before sbatch began
                return False
            raise ConfigError(
                "--slurm",
                f"sbatch refused the job: {answer}",
                "Correct --slurm or --sbatch, and give the command again",
            )
        states = submission.list_states()
        if states and submission.sweep_id != self.plan.sweep_id:
            raise ConfigError(
                "--out",
                f"{submission} runs trials of another spec (sweep {submission.sweep_id})",
                "Wait for its end, or give another --out",
            )
        missing = self._collect(submission)
        n_trials = len(submission.progress)
        text = f"{n_trials - len(missing)} of {n_trials} trials have a result"
        self._report(f"{submission}: {submission.describe_states(states)}; {text}")
        if not states:
            self._settle(submission, missing)
        return bool(states)

    def _collect(self, submission: Submission) -> set[str]:
        """Record the results of a submission; return the trials without a result."""
        out, missing = self.settings.out, {*submission.progress} - self._recorded
        fresh = {trial_id for trial_id in missing if self._locate_result(trial_id).exists()}
        if fresh:
            self.collected += import_batch(out, out, fresh)["done"]
            self._recorded |= fresh
        return missing - fresh

    def _settle(self, submission: Submission, missing: set[str]) -> None:
        """Mark a submission as ended, and print how the tasks of the missing trials ended."""
        ends = submission.list_ends() if missing else {}
        numbers = submission.number_tasks()
        counts = Counter(ends.get(numbers[trial], "unknown") for trial in missing)
        if missing:
            text = ", ".join(f"{count} {end}" for end, count in counts.items())
            text = f"{len(missing)} trials have no result, and their tasks have ended: {text}"
            log = submission.locate_log(min(missing))
            print_text(f"{submission}: {text} (a log: {log})", error=True)
        submission.ended = True
        submission.write()
        self._recorded.clear()
        if any(end.startswith("CANCELLED") for end in counts):
            self.stop.set()  # who cancels tasks does not want them to be submitted again at once

    def _submit(self) -> Submission | None:
        """Submit the trials that can start; return None if there are none."""
        settings, most_tasks = self.settings, 1 if self.sbatch is None else MOST_TASKS
        if settings.retry_failed:
            with Ledger(settings.ledger) as ledger:
                ledger.reset_failures(self.plan.sweep_id)
        self.settings = replace(settings, retry_failed=False)  # once
        # leave out trials of which four tasks have ended without progress
        submissions = record.list_submissions(settings.out)
        n_begun = sum(1 for _ in settings.trials.glob("*"))
        entries, progress = list[Entry](), dict[str, str]()
        self.given_up.clear()
        for entry in list_ready_trials(self.plan, self.settings, evaluates=True)[0]:
            trial_id = entry.trial_id
            state = self._describe_progress(trial_id) or f"{n_begun} others have begun"
            tries = [s for s in submissions if s.progress.get(trial_id) == state]
            if len(tries) > RETRIES and not settings.retry_failed:
                self.given_up[trial_id] = tries[-1].locate_log(trial_id)
            else:
                progress[trial_id] = state
                entries.append(entry)
        if not entries:
            return None
        # write the trials and the record
        name = f"ablate-{time.strftime('%Y-%m-%d-%H%M%S')}-{secrets.token_hex(4)}"
        cells = settings.out.resolve() / FOLDER / name / "cells.jsonl"
        write_entries(self.plan, entries, cells)
        for trial_id in progress:  # a result of an earlier submission is none of this one
            self._locate_result(trial_id).unlink(missing_ok=True)
        submission = Submission(
            folder=cells.parent,
            is_local=self.sbatch is None,
            sweep_id=self.plan.sweep_id,
            tasks=min(math.ceil(len(progress) / self.trials_at_once), most_tasks),
            progress=progress,
        )
        submission.write()
        # start the tasks
        command = [*PYTHON, "trainables.jobs.batch", str(cells)]
        command += ["--out", str(settings.out.resolve()), "--processes", str(self.trials_at_once)]
        if not submission.is_local and settings.request.device == "auto":
            command += ["--device", "cuda"]  # a node whose GPU is unusable ends with a sentence
        submission.start_tasks(command, self.sbatch or (), self.limit)
        return submission

    def _describe_progress(self, trial_id: str) -> str:
        """Return a trial's newest checkpoint and its result's digest; "" if it has not begun."""
        folder = locate_trial_folder(self.settings.trials, trial_id)
        checkpoint = max(
            (path.name for path in (folder / CHECKPOINTS).glob("steps-*")), default="-"
        )
        result = digest(folder / RESULT) if (folder / RESULT).exists() else "-"
        return f"{checkpoint} {result}" if folder.exists() else ""

    def _locate_result(self, trial_id: str) -> Path:
        return locate_trial_folder(self.settings.trials, trial_id) / RESULT_NAME

    def _report(self, activity: str) -> None:
        """Print what happens, if it has changed."""
        if activity != self._activity:
            self._activity = activity
            print_text(activity, flush=True)
