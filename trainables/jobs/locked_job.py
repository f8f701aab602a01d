"""Run a job in a locked trial folder with a log, and collect its events.

The foreground (`--cell`) and Ray's workers share this module, so it does not import Ray. An epoch's
event that gets lost on its way to the driver is repeated in the final event.
"""

import logging
import os
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pkgutil import resolve_name
from typing import Any

from filelock import FileLock, Timeout

from trainables.core.runtime import CHECKPOINTS, LOCK, LOG
from trainables.jobs.request import Job
from trainables.machine.processes import Watch, feed_watchdog
from trainables.words.errors import ConfigError, TrialFailure
from trainables.words.secrets import HidingFormatter, redact_secrets

Event = dict[str, Any]
Runner = Callable[[Job], Iterator[Event]]

LOCK_SECONDS = 120.0
RETRIES = 3  # retries of a trial that the machine ended
EQUAL_ERRORS = 3  # equal ConfigErrors without a success between them, which stop a study


def limit_threads(threads: int | None) -> None:
    """Limit number and active waiting of threads of libraries that are imported later."""
    if threads:
        # torch's are limited by the trainer, too, because torch may be imported already
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[variable] = str(threads)
    # By default a waiting thread occupies its core for milliseconds, which other trials may need.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def count_equal_errors(
    counts: dict[str, Counter[str]], studies: Iterable[str], last: Mapping[str, Any]
) -> list[str]:
    """Update `counts` by a trial's last event, and return which of the trial's studies must stop.

    `counts` maps a study to the number of each ConfigError since its last success. A study stops at
    the third equal error, because all its other trials would fail likewise.
    """
    stopped = []
    for study in studies:
        errors = counts.setdefault(study, Counter())
        if last["event"] == "final":
            errors.clear()
        elif last["event"] == "failed" and str(last["reason"]).startswith(ConfigError.__name__):
            errors[last["reason"]] += 1
            if errors[last["reason"]] == EQUAL_ERRORS:
                stopped.append(study)
    return stopped


class LockedJob:
    """Run a job in its trial folder, locked against other processes.

    Args:
        job: the work; `job.runtime.trial_dir` must be set.
        runner: `module:function`, the generator function that runs the job.
        clean: whether to delete the folder of checkpoints after the final event.
        lock_seconds: how long to wait for another process's lock before a TimeoutError.
    """

    def __init__(
        self, job: Job, runner: str, *, clean: bool, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        """Lock the trial's folder and begin its log; `clean` deletes checkpoints at the end."""
        assert job.runtime.trial_dir is not None, f"The job of {job.trial_id} has no folder"
        self.job, self.clean, self.folder = job, clean, job.runtime.trial_dir
        self._runner: Runner = resolve_name(runner)  # imports the function
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / LOCK)
        try:
            self._lock.acquire(timeout=lock_seconds)
        except Timeout:
            raise TimeoutError(
                f"another process has held {self.folder} for {lock_seconds:.0f} s or more. End "
                "that process and start again"
            ) from None
        self._log = logging.FileHandler(self.folder / LOG, encoding="utf-8", delay=True)
        self._log.setFormatter(HidingFormatter("%(asctime)s %(levelname)s %(message)s"))
        self._logger = logging.getLogger("trainables")
        self._logger.addHandler(self._log)
        self._logger.setLevel(min(self._logger.level or logging.INFO, logging.INFO))  # or finer
        self._events: Iterator[Event] | None = None

    def receive_events(self, patience: float) -> list[Event]:
        """Run the job for about `patience` seconds and return its events, at least one.

        A job's last event is "final", "paused" or "failed" (with reason and traceback).

        Raises:
            OSError: the machine is at fault, so the job may be retried.
        """
        events: list[Event] = []
        end = time.monotonic() + patience
        seconds = self.job.runtime.stuck_after  # without an event, until `Watch` ends this process
        watch = None if seconds is None else Watch(seconds, self.folder / LOG)
        try:
            if self._events is None:
                mode, pid = self.job.mode, os.getpid()
                self._logger.info("%s begins (%s) in process %d", self.job.trial_id, mode, pid)
                self._events = iter(self._runner(self.job))
            for event in self._events:
                events.append(event)
                feed_watchdog()
                if event["event"] == "final" and self.clean:
                    shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)
                if event["event"] != "epoch" or time.monotonic() >= end:
                    return events
            raise TrialFailure("The job's runner ended without a final event")
        except OSError as error:
            self._logger.info("%s was interrupted by the machine: %s", self.job.trial_id, error)
            raise
        except Exception as error:
            last = build_failure_event(error)
            self._logger.info("%s", last["traceback"].rstrip())
            self._logger.info("%s failed: %s", self.job.trial_id, last["reason"])
            return [*events, last]
        finally:
            if watch is not None:  # waiting for the driver does not count as stuck
                watch.close()

    def remove_files(self) -> None:
        """Delete all files in the trial's folder except the lock, after copies have been stored."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != LOCK:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """End the runner and unlock the folder; errors of the runner's clean-up are only logged."""
        events, self._events = self._events, None
        try:
            if isinstance(events, Generator):
                events.close()
        except Exception:
            self._logger.exception("The clean-up of the runner failed")
        finally:
            self._logger.removeHandler(self._log)
            self._log.close()
            self._lock.release()


def build_failure_event(error: BaseException) -> dict[str, str]:
    """Return the last event of a job that failed with `error`."""
    reason = redact_secrets(" ".join(f"{type(error).__name__}: {error}".split()))
    trace = redact_secrets("".join(traceback.format_exception(error)))
    return {"event": "failed", "reason": reason, "traceback": trace}
