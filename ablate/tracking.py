"""MLflow as a replica of the ledger: one writer, on the driver, in a thread of its own.

The thread is told which trials moved and reads them from the ledger, so that whatever it could
not write (a store that was away, a driver that was killed) is still there to be written: by the
thread when the store is back, by the next run of the sweep, or by `replay`.

A parent run per sweep, a child per (sweep, trial); `ablate/mlflow_payload.py` has the layout.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ablate.ledger import Ledger, LedgerError
from ablate.mlflow_payload import STATUS
from ablate.mlflow_store import quiet_environment, store_key
from ablate.mlflow_writer import PARENT, Writer

__all__ = ["Replayed", "Tracker", "replay"]

LIVE_SECONDS = 5.0  # a running trial is written at most this often
LINGER_SECONDS = 0.5  # trials that end within this time are written together
FIRST_RETRY, LAST_RETRY = 0.5, 30.0
DRAIN_SECONDS = 60.0
log = logging.getLogger("ablate.tracking")

EndStatus = Literal["FINISHED", "FAILED", "KILLED"]


class Tracker:
    """The thread that keeps a sweep's MLflow runs up to date.

    Args:
        ledger_path: the ledger; the thread opens its own connection.
        tracking_uri: any MLflow tracking URI.
        sweep_id: a sweep that the ledger knows (`Ledger.put_sweep`).
        experiment: the experiment's name (the spec's name).
        live_seconds: how often a running trial is written, at most.
        drain_seconds: how long `close` waits for a store that is away.

    A store that is away costs one warning; nothing is raised into the sweep. An error that is
    no fault of the store (a bug) ends the thread and is raised by `close`.
    """

    def __init__(
        self,
        ledger_path: str | Path,
        tracking_uri: str,
        sweep_id: str,
        experiment: str,
        *,
        live_seconds: float = LIVE_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        self.ledger_path, self.tracking_uri = Path(ledger_path), tracking_uri
        self.sweep_id, self.experiment = sweep_id, experiment
        self.live_seconds, self.drain_seconds = live_seconds, drain_seconds
        self._moved: dict[str, float] = {}  # trial → when it was first told since its last write
        self._guard = threading.Lock()
        self._wake, self._first_try = threading.Event(), threading.Event()
        self._closing: EndStatus | None = None
        self._deadline = float("inf")
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._away = False
        self._refused: dict[str, str] = {}

    def start(self, *, wait: bool = True) -> None:
        """Start the thread. Returns when the store's tables are there, or were tried in vain.

        With `wait=False` it returns at once, and `ready` waits: opening a fresh store costs
        seconds, which may pass while Ray starts.
        """
        quiet_environment()
        self._thread = threading.Thread(target=self._run, name="ablate-tracker", daemon=True)
        self._thread.start()
        if wait:
            self.ready()

    def ready(self, timeout: float | None = None) -> bool:
        """Wait for the first try to open the store; whether it is over."""
        return self._first_try.wait(timeout)

    def notify(self, trial_id: str) -> None:
        """A trial moved in the ledger (an epoch, an end, an evaluation). Cheap; any thread."""
        with self._guard:
            self._moved.setdefault(trial_id, time.monotonic())

    def close(self, status: EndStatus = "FINISHED") -> bool:
        """Write what is left, end the parent run with `status`, end the thread.

        Returns whether MLflow has everything; otherwise a warning says how to replay it.
        """
        if self._thread is None:
            return True
        self._deadline = time.monotonic() + self.drain_seconds
        self._closing = status
        self._wake.set()
        self._thread.join()
        self._thread = None
        if self._error is not None:
            raise self._error
        for trial_id, reason in self._refused.items():
            log.warning("MLflow refused trial %s: %s", trial_id, reason)
        return not self._away and not self._refused

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        try:
            with Ledger(self.ledger_path) as ledger:
                writer = Writer(ledger, self.tracking_uri, self.sweep_id, self.experiment)
                self._work(ledger, writer)
        except BaseException as error:  # raised by `close`, in the caller's thread
            self._error = error
            log.warning("MLflow tracking stopped: %s: %s", type(error).__name__, error)
        finally:
            self._first_try.set()

    def _work(self, ledger: Ledger, writer: Writer) -> None:
        opened = False
        delay = FIRST_RETRY
        while True:
            closing = self._closing
            try:
                if not opened:
                    writer.open()
                    self._first_try.set()
                    writer.reconcile()
                    writer.begin()
                    self._write_all(writer)
                    end_orphans(ledger, writer)
                    opened = True
                self._write_moved(ledger, writer)
                if closing is not None:
                    self._write_all(writer)
                    writer.end(closing)
                if self._away:
                    log.warning("MLflow store %s is back; nothing was lost", self.tracking_uri)
                self._away, delay = False, FIRST_RETRY
                if closing is not None:
                    return
            except Exception as error:
                if not is_away(error):
                    raise
                self._first_try.set()
                self._tell_away(error)
                if closing is not None and time.monotonic() + delay > self._deadline:
                    log.warning(
                        "MLflow store %s is still away; the ledger has everything: "
                        "`ablate ledger replay` writes it when the store is back",
                        self.tracking_uri,
                    )
                    return
                time.sleep(min(delay, 1.0)) if closing else self._wake.wait(delay)
                delay = min(2 * delay, LAST_RETRY)
                continue
            self._wake.wait(LINGER_SECONDS)

    def _tell_away(self, error: Exception) -> None:
        if not self._away:
            log.warning(
                "MLflow store %s is away (%s); the sweep goes on and will be written when it is "
                "back", self.tracking_uri, first_line(error),
            )  # fmt: skip
        self._away = True

    def _write_all(self, writer: Writer) -> None:
        for trial_id in writer.trial_ids():
            self._write(writer, trial_id)

    def _write_moved(self, ledger: Ledger, writer: Writer) -> None:
        """Write the trials that ended, and those running ones whose turn has come."""
        with self._guard:
            moved = dict(self._moved)
        if not moved:
            return
        now = time.monotonic()
        due = []
        for trial_id, told in moved.items():
            trial = ledger.trial(trial_id)
            ended = trial is not None and trial["status"] in STATUS
            if ended or now - told >= self.live_seconds:
                due.append(trial_id)
        if due:
            writer.trial_ids()
        for trial_id in due:
            # Forgotten before it is read: what is told meanwhile stays to be written.
            with self._guard:
                told = self._moved.pop(trial_id)
            try:
                self._write(writer, trial_id)
            except Exception:
                with self._guard:
                    self._moved[trial_id] = told
                raise

    def _write(self, writer: Writer, trial_id: str) -> None:
        reason = write_or_refuse(writer, trial_id)
        if reason is not None and self._refused.setdefault(trial_id, reason) is not reason:
            log.debug("MLflow refused trial %s again: %s", trial_id, reason)


def first_line(error: BaseException) -> str:
    """The first line of an error, cut to a line's length."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def is_away(error: BaseException) -> bool:
    """Whether an error means that a store (or the ledger's disk) cannot be used now."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    # Refused and lost runs are handled where they are written; every other MlflowException is
    # the store's. OSError holds refused connections, time-outs and file locks.
    return isinstance(
        error, MlflowException | SQLAlchemyError | OSError | LedgerError | sqlite3.Error
    )


def write_or_refuse(writer: Writer, trial_id: str) -> str | None:
    """Write one trial's run; a run that the store has lost is made anew.

    Returns None, or why the store will never take it (so that one trial cannot hold up the
    others). Raises if the store is away.
    """
    from mlflow.exceptions import MlflowException

    for last in (False, True):
        try:
            writer.write(trial_id)
            return None
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            lost = error.error_code == "RESOURCE_DOES_NOT_EXIST" or "'active'" in str(error)
            if last or not lost:
                return first_line(error)
            writer.forget(trial_id)
    return None


def end_orphans(ledger: Ledger, writer: Writer) -> None:
    """End what dead drivers of this ledger's other sweeps left RUNNING in the same store."""
    unfinished = {
        row["sweep_id"]
        for row in ledger.mlflow_runs(writer.store)
        if row["trial_id"] == PARENT and not row["logged_final"]
    } - {writer.sweep_id}
    for sweep_id in sorted(unfinished):
        name = ledger.sweep(sweep_id)["name"]
        other = Writer(ledger, writer.tracking_uri, sweep_id, name)
        if other.driver_is_dead():
            other.reconcile()
            for trial_id in other.trial_ids():
                write_or_refuse(other, trial_id)
            other.end("KILLED")


@dataclass(frozen=True)
class Replayed:
    """What `replay` did: trials looked at, and those that the store refused, with the reason."""

    trials: int
    refused: dict[str, str]


def replay(
    ledger_path: str | Path, tracking_uri: str, sweep_id: str, *, experiment: str | None = None
) -> Replayed:
    """Write a sweep from the ledger into an MLflow store; what is there already stays.

    Args:
        experiment: its name; default: the sweep's name.

    Raises:
        KeyError: the ledger does not know the sweep.
        mlflow.exceptions.MlflowException, OSError: the store is away.
    """
    quiet_environment()
    with Ledger(ledger_path) as ledger:
        name = experiment or str(ledger.sweep(sweep_id)["name"])
        writer = Writer(ledger, store_key(tracking_uri), sweep_id, name)
        writer.reconcile(thorough=True)
        writer.begin()
        trial_ids = writer.trial_ids()
        refused = {}
        for trial_id in trial_ids:
            reason = write_or_refuse(writer, trial_id)
            if reason is not None:
                refused[trial_id] = reason
        writer.end("FINISHED")
        return Replayed(len(trial_ids), refused)
