"""Copy a sweep's results from the ledger to trackers, from a thread of the driver.

MLflow (`ablate.tracking.sync`) is the tracker that reports read. Further trackers, which plug-ins
register, copy one trial after another. The ledger's table `mlflow_runs` has the checksum of each
ended trial that a tracker has completely; any other trial is written again.

Only the end of a run waits for a tracker, and only while its store accepts data. The next run of
the sweep or `ablate ledger replay` writes the rest.
"""

import contextlib
import logging
import math
import queue
import re
import shlex
import sqlite3
import threading
import traceback
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from ablate.ledger.ledger import Ledger, Owner, is_held
from ablate.ledger.queries import count_unlogged, list_sweep_trials
from ablate.ledger.schema import LedgerDamage, LedgerError
from ablate.tracking import payload
from trainables.words.errors import ConfigError
from trainables.words.registry import Registry

EndStatus = Literal["FINISHED", "FAILED", "KILLED"]

OPTION = "--tracker"
# by the value of --tracker, up to a colon; plug-ins register them
TRACKERS: "Registry[type[TrialTracker]]" = Registry("trackers", "ablate.plugins")
LOCK_SECONDS = 5.0
_CAUSE = re.compile(r"\(Caused by (.*)\)$")  # urllib3's part of MLflow's message
RETRY_SECONDS = 0.5  # between two tries when closing
LAST_SECONDS = 1.0  # that `close` waits for a thread that was given up
log = logging.getLogger("ablate.tracking")


class Tracker(ABC):
    """A place to which one sweep is copied; used by one thread.

    Args:
        title: how messages begin: the name and the place, without a password.
        store: the tracker's name in the ledger.
        remedy: the command that writes later what is missing.

    Attributes:
        name: what messages call it.
        kind: its name in `--tracker` and in the name of its lock file.
        is_required: whether a bug in the tracker ends the command with an error.
        refused: why the store refused trials when they were last written, by trial.
    """

    name: str
    kind: str
    is_required = False

    def __init__(self, title: str, store: str, remedy: str) -> None:
        """Name the tracker; nothing is imported or opened."""
        self.title, self.store, self.remedy = title, store, remedy
        self.refused: dict[str, str] = {}

    def open(self, ledger: Ledger, sweep_id: str) -> None:
        """Read the sweep, and prepare the file lock for processes that write its trials."""
        self.ledger, self.sweep_id, self.sweep = ledger, sweep_id, ledger.get_sweep(sweep_id)
        self.driver = str(Owner.from_this_process())
        name = (
            f"{ledger.path.name}.{self.kind}-{sweep_id}-{zlib.crc32(self.store.encode()):08x}.lock"
        )
        self.lock = FileLock(ledger.path.with_name(name), timeout=LOCK_SECONDS)

    @abstractmethod
    def sync(
        self, trial_ids: Iterable[str] | None = None, *, status: EndStatus | None = None
    ) -> int:
        """Write what the copy lacks of these trials (None: of all); return the number of trials.

        After any failure the same call writes the rest. `status` says how the sweep has ended.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what is open, after everything was written."""

    def is_away(self, error: BaseException) -> bool:
        """Return whether an error means that the store, or the ledger's disk, cannot be used now.

        The caller tries again later; any other error is a bug.
        """
        return isinstance(error, OSError | LedgerError | sqlite3.Error)

    def redact(self, text: str) -> str:
        """Return a text without the password of the store."""
        return text


@dataclass(frozen=True)
class TrialRun:
    """What the ledger has of one trial of a sweep: rows, cells, and metrics after its end."""

    sweep: payload.Row
    trial: payload.Row
    cells: list[dict[str, Any]]  # each with study, cell, seed and perhaps fold
    epochs: Sequence[payload.Row]
    final: Sequence[payload.Point]


class TrialTracker(Tracker):
    """A tracker that copies one trial after another.

    Args:
        option: the value of `--tracker` that names the tracker.
        out: the output folder, which has the ledger and gets the tracker's files.
    """

    def __init__(self, option: str, out: Path) -> None:
        command = ["ablate", "ledger", "replay", "--out", str(out), OPTION, option]
        super().__init__(f"{self.name} ({OPTION} {option})", option, f"`{shlex.join(command)}`")
        self.out = out

    @abstractmethod
    def check_usable(self) -> None:
        """Raise ConfigError if the option, a package or the user's set-up has a fault."""

    @abstractmethod
    def write(self, run: TrialRun) -> None:
        """Write what the tracker lacks of a trial, which may be running."""

    def has_run(self, sweep: payload.Row, cells: list[dict[str, Any]]) -> bool:
        """Return whether the tracker still has a written trial, which fills these cells."""
        return True

    def sync(
        self, trial_ids: Iterable[str] | None = None, *, status: EndStatus | None = None
    ) -> int:
        """Write what the copy lacks of these trials; see `Tracker.sync`.

        A trial that cannot be written blocks no other; the first error is raised at the end.
        """
        if trial_ids is None:
            trials = list_sweep_trials(self.ledger, self.sweep_id)
            trial_ids = [trial["trial_id"] for trial in trials]
        ids, errors = list(dict.fromkeys(trial_ids)), []
        for trial_id in ids:
            try:
                with self.lock:
                    self._write_trial(trial_id)
            except Exception as error:
                if not self.is_away(error):
                    raise
                errors.append(error)
        if errors:
            raise errors[0]
        return len(ids)

    def _write_trial(self, trial_id: str) -> None:
        """Write a trial, unless it has ended and nothing of it has changed since it was written."""
        ledger, store, sweep_id = self.ledger, self.store, self.sweep_id
        trial, rows = ledger.get_trial(trial_id), ledger.list_cells(sweep_id, trial_id)
        if trial is None or not rows:  # the trial has not started, or is none of this sweep
            return
        if trial["status"] == "running" and is_held(trial, Owner.parse(self.driver)):
            return  # another driver trains the trial, and writes it
        cells, checksum, final = payload.describe_cells(rows, "study", "cell", "seed"), 0, []
        if trial["status"] in payload.STATUS:
            evaluations = ledger.get_evaluations(trial_id)
            checksum = payload.compute_checksum(trial, evaluations, cells)
            recorded = ledger.get_recorded_times(trial_id)
            final = list(payload.iterate_final_metrics(trial, evaluations, recorded))
        row = ledger.get_mlflow_run(store, sweep_id, trial_id)
        is_new = row is None or row["logged_final"] != checksum
        if checksum == 0 or is_new or not self.has_run(self.sweep, cells):
            epochs = ledger.list_epochs(trial_id)
            self.write(TrialRun(self.sweep, trial, cells, epochs, final))
        if is_new:
            position = {"trial_id": trial_id, "run_id": trial_id, "logged_final": checksum}
            ledger.put_mlflow_run(store, sweep_id, position)


def build_trackers(options: Sequence[str], out: Path) -> list[TrialTracker]:
    """Return the trackers that `--tracker` names, after a check that they can be used.

    Raises:
        ConfigError: there is no such tracker, one is given twice, or one cannot be used.
    """
    trackers: dict[str, TrialTracker] = {}
    for option in options:
        kind = option.partition(":")[0]
        if kind not in TRACKERS:
            raise ConfigError(OPTION, f"there is no {kind!r}", f"Give one of {', '.join(TRACKERS)}")
        if kind in trackers:
            raise ConfigError(OPTION, f"{kind} is given twice", "Keep one of the two")
        trackers[kind] = TRACKERS[kind](option, out)
        trackers[kind].check_usable()
    return list(trackers.values())


def extract_first_line(error: BaseException) -> str:
    """Return the first line of an error or, of a failed request, its cause; at most 200 letters."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    cause = _CAUSE.search(line)
    return (cause[1] if cause else line)[:200]


class TrackingError(RuntimeError):
    """A bug in the thread that writes to a tracker; the ledger is complete."""


@dataclass
class TrackerThread:
    """Run the thread that keeps a tracker's copy of a sweep up to date.

    A store that does not answer causes one warning. A bug causes a warning; `close` repeats it.
    """

    ledger_path: Path
    tracker: Tracker
    sweep_id: str  # one that the ledger has (`Ledger.put_sweep`)
    interval: float = 5.0  # seconds between two writes
    drain_seconds: float = 60.0  # that `close` waits for a store that takes nothing

    def __post_init__(self) -> None:
        """Prepare the thread, and what it shares with `notify` and `close`."""
        self._changed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._status: EndStatus | None = None
        self._given_up = threading.Event()  # `close` waits no longer
        self._is_away = False  # whether the store did not answer at the last try
        self._refused: dict[str, str] = {}  # trial → why the store refuses its run
        self._error: BaseException | None = None  # which ended the thread
        name = self.tracker.name
        self._thread = threading.Thread(target=self._run_thread, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, which first writes everything in the ledger."""
        self._thread.start()

    def notify(self, trial_id: str) -> None:
        """Tell the thread, from any thread, that a trial has changed in the ledger."""
        self._changed.put(trial_id)

    def close(self, status: EndStatus = "FINISHED") -> bool:
        """Let the thread write the rest and end the sweep's run with `status`; wait for the thread.

        Returns:
            Whether the tracker has everything; otherwise a warning has said how to write the rest.

        Raises:
            LedgerDamage: the ledger cannot be read any more.
            TrackingError: an unexpected error has ended the thread of a required tracker before.
        """
        self._status = status
        self._closing.set()
        try:
            # wait as long as the number of trials that the tracker lacks goes down
            lacking, before = self._count_unlogged(), math.inf
            while lacking < before and self._thread.is_alive():
                self._thread.join(self.drain_seconds)
                before, lacking = lacking, self._count_unlogged()
            is_late = self._thread.is_alive()
        finally:
            self._given_up.set()
            self._thread.join(LAST_SECONDS)  # time for the thread to close the ledger
        if isinstance(self._error, LedgerDamage):
            raise self._error
        # say what the tracker lacks
        tracker, fault = self.tracker, ""
        if is_late:
            fault = "the store does not answer" if self._is_away else "the store is still busy"
        if self._refused and not self._is_away:
            n, (trial_id, reason) = len(self._refused), next(iter(self._refused.items()))
            fault = f"the store refused {n} of the sweep's trials, such as {trial_id} ({reason})"
        if fault:
            self._warn(
                f"{fault}. The ledger has all results: {tracker.remedy} writes the {lacking} ended "
                f"trials that {tracker.name} lacks."
            )
        if self._error is not None:
            text = tracker.redact(f"{type(self._error).__name__}: {self._error}")
            text = (
                f"{tracker.name} tracking stopped ({text}). The ledger has all results: "
                f"{tracker.remedy} writes them to {tracker.name}."
            )
            if tracker.is_required:
                raise TrackingError(text) from self._error
            self._warn(text)
        return not (is_late or self._is_away or self._refused or self._error)

    def _run_thread(self) -> None:
        """Write changes until `close`; log an unexpected error, which `close` raises."""
        try:
            with Ledger(self.ledger_path) as ledger:
                self.tracker.open(ledger, self.sweep_id)
                self._sync_until_closed()
        except LedgerDamage as error:
            self._error = error  # `close` raises it
        except BaseException as error:
            self._error = error
            text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            name, text = self.tracker.name, self.tracker.redact(text)
            log.warning("%s tracking has stopped, and the sweep goes on without it: %s", name, text)

    def _sync_until_closed(self) -> None:
        """Write changed trials every `interval` seconds, and all trials first and at the end.

        If the store does not answer, warn once and try again.
        """
        changed: set[str] = set()  # trials that have changed since the last write
        has_begun = False  # whether the first write, of all trials, has succeeded
        while not self._given_up.is_set():
            # only a last write has a status, which ends the sweep's run
            status = self._status if has_begun and self._closing.is_set() else None
            with contextlib.suppress(queue.Empty):
                while True:
                    changed.add(self._changed.get_nowait())
            writes_all = status is not None or not has_begun
            try:
                self.tracker.sync(None if writes_all else changed, status=status)
            except Exception as error:
                if not self.tracker.is_away(error):
                    raise
                if not self._is_away:
                    fault = f"the store does not answer ({extract_first_line(error)})"
                    self._warn(f"{fault}. The sweep goes on, and is written to the store later.")
                self._is_away = True
            else:
                if self._is_away:
                    self._warn("the store answers again; nothing was lost.")
                self._is_away = False
                has_begun = True
                changed.clear()
                self._refused = dict(self.tracker.refused)
                if status is not None:
                    self.tracker.close()
                    return
            # wait for the next write, or at the end for the next try
            if self._closing.is_set():
                self._given_up.wait(RETRY_SECONDS if self._is_away else 0)
            else:
                self._closing.wait(self.interval)

    def _warn(self, text: str) -> None:
        log.warning("%s: %s", self.tracker.title, self.tracker.redact(text))

    def _count_unlogged(self) -> int:
        with Ledger(self.ledger_path) as ledger:
            return count_unlogged(ledger, self.tracker.store, self.sweep_id)


def replay(ledger_path: Path, tracker: Tracker, sweep_id: str) -> tuple[int, dict[str, str]]:
    """Write what a tracker lacks of a sweep, which counts as finished.

    Returns:
        The number of trials in the ledger, and trial → why the store refused it.

    Raises:
        ConfigError: the store does not answer.
    """
    with Ledger(ledger_path) as ledger:
        ledger.release_dead()  # free the trials of drivers that were killed
        tracker.open(ledger, sweep_id)
        try:
            count = tracker.sync(status="FINISHED")
        except Exception as error:
            if isinstance(error, LedgerError) or not tracker.is_away(error):
                raise  # not the store's fault
            raise ConfigError(
                tracker.title,
                f"The store does not answer ({tracker.redact(extract_first_line(error))})",
                f"When it answers again, run {tracker.remedy}",
            ) from error
        tracker.close()
        return count, dict(tracker.refused)
