"""MLflow as a replica of the ledger: the loop that writes what moved.

It is told which trials moved and reads them from the ledger, so that whatever it could not write
(a store that was away, a process that was killed) is still there to be written: by the loop when
the store is back, by the next run of the sweep, or by `replay`.

A parent run per sweep, a child per (sweep, trial); `ablate/tracking/payload.py` has the layout.
"""

from __future__ import annotations

import logging
import os
import select
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from filelock import Timeout

from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.schema import LedgerError
from ablate.tracking.payload import STATUS, Defaults
from ablate.tracking.runs import PARENT
from ablate.tracking.store import is_damaged
from ablate.tracking.writer import Writer, first_line
from reports.uri import redacted, scrubbed

LINGER_SECONDS = 0.25  # trials that end within this time are written together
FIRST_RETRY, LAST_RETRY = 0.5, 30.0
DRIVER_END_SECONDS = 10.0  # a process whose pipe is closed takes a moment to be gone
CLOSE = "close "  # the line `close FINISHED` ends the loop; any other line is a trial's id
log = logging.getLogger("ablate.tracking")

EndStatus = Literal["FINISHED", "FAILED", "KILLED"]


@dataclass
class Inbox:
    """The reading end of the driver's pipe.

    moved: trial → when (monotonic) it was first told since it was last taken. closing: the
    status that the parent run shall end with. orphaned: the pipe ended without a word.
    """

    fd: int
    moved: dict[str, float] = field(default_factory=dict)
    closing: EndStatus | None = None
    orphaned: bool = False
    _rest: bytes = b""

    def wait(self, seconds: float) -> None:
        """Read for this long; until it is told to close, if that is sooner."""
        end = time.monotonic() + seconds
        while self.closing is None:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                return
            self._read()

    def _read(self) -> None:
        data = os.read(self.fd, 1 << 16)
        if not data:
            self.closing, self.orphaned = "KILLED", True
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in map(bytes.decode, lines):
            if line.startswith(CLOSE):
                self.closing = cast(EndStatus, line.removeprefix(CLOSE))
            else:
                self.moved.setdefault(line, time.monotonic())


@dataclass
class Replica:
    """Keeps a sweep's runs up to date until its inbox says that the sweep is over.

    driver: whose sweep it is. live_seconds: how often a running trial is written, at most.
    drain_seconds: how long a store that is away is waited for at the end. opened: called when
    the store's tables are there, or were tried in vain. remedy: the command that writes later
    what could not be written. defaults: as `Writer` takes them.

    A store that is away costs one warning, and so does one that is damaged, which is given up; any
    other error is raised.
    """

    ledger_path: Path
    tracking_uri: str
    sweep_id: str
    experiment: str
    inbox: Inbox
    driver: Owner
    live_seconds: float
    drain_seconds: float
    remedy: str = "`ablate ledger replay`"
    defaults: Defaults | None = None
    opened: Callable[[], None] = lambda: None
    damaged: bool = False  # the store's file is
    _begun: bool = False
    _away: bool = False
    _told: bool = False  # that a trial was refused
    _again: tuple[float, float] = (0.0, FIRST_RETRY)  # when refused trials are tried, then how late

    def run(self) -> bool:
        """Returns whether MLflow has everything; if not, a warning has said so."""
        with Ledger(self.ledger_path) as ledger:
            writer = Writer(
                ledger,
                self.tracking_uri,
                self.sweep_id,
                self.experiment,
                driver=self.driver,
                defaults=self.defaults,
            )
            self._work(ledger, writer)
        if writer.refused and not self._away:
            trial_id, refusal = next(iter(writer.refused.items()))
            log.warning(
                "MLflow store %s refused %d of the sweep's trials, as %s (%s); the ledger has "
                "everything: %s writes what it then takes",
                self.shown,
                len(writer.refused),
                trial_id,
                scrubbed(refusal.reason, self.tracking_uri),
                self.remedy,
            )
        return not self._away and not writer.refused

    def _work(self, ledger: Ledger, writer: Writer) -> None:
        delay, deadline = FIRST_RETRY, float("inf")
        while True:
            closing = self.inbox.closing
            if closing is not None and deadline == float("inf"):
                deadline = time.monotonic() + self.drain_seconds
                if self.inbox.orphaned:
                    self._release_driver(ledger)
            try:
                self._step(ledger, writer, closing)
                again = closing is not None and bool(writer.may_take)
            except Exception as error:
                if not is_away(error):
                    raise
                again = True
                self.opened()
                if is_damaged(error):
                    self._tell_damaged(error)
                    return
                self._tell_away(error)
            if not again:
                if closing is not None:
                    return
                delay = FIRST_RETRY
                self.inbox.wait(LINGER_SECONDS)
                continue
            pause = delay if closing is None else min(delay, 1.0)
            if time.monotonic() + pause > deadline:
                if self._away:
                    log.warning(
                        "MLflow store %s is still away; the ledger has everything: "
                        "%s writes it when the store is back",
                        self.shown,
                        self.remedy,
                    )
                return
            time.sleep(pause) if closing else self.inbox.wait(pause)
            delay = min(2 * delay, LAST_RETRY)

    def _step(self, ledger: Ledger, writer: Writer, closing: EndStatus | None) -> None:
        """Write what there is to write; all there is when the sweep is over."""
        if not self._begun:
            self._begin(ledger, writer)
            self._begun = True
        if closing is None:
            self._write_moved(ledger, writer)
        else:
            writer.write(writer.trial_ids())
            writer.end(closing)
        if self._away:
            log.warning("MLflow store %s is back; nothing was lost", self.shown)
        self._away = False

    def _begin(self, ledger: Ledger, writer: Writer) -> None:
        writer.open()
        self.opened()
        writer.reconcile()
        writer.begin()
        writer.write(writer.trial_ids())
        end_orphans(ledger, writer)

    def _release_driver(self, ledger: Ledger) -> None:
        """The driver died: what it was running is resumable, and its runs are to say so."""
        end = time.monotonic() + DRIVER_END_SECONDS
        while self.driver.alive(time.time()) and time.monotonic() < end:
            time.sleep(0.02)
        ledger.release_dead()

    def _tell_damaged(self, error: Exception) -> None:
        self._away = self.damaged = True
        log.warning(
            "MLflow store %s is damaged (%s); the sweep goes on, and the ledger has "
            "everything: %s moves the store aside and writes it anew",
            self.shown,
            self._said(error),
            self.remedy.replace("ledger replay", "ledger replay --rebuild", 1),
        )

    def _tell_away(self, error: Exception) -> None:
        if self._away:
            return
        self._away = True
        if isinstance(error, Timeout):
            log.warning(
                "another process is writing this sweep's MLflow runs (%s is locked); the sweep "
                "goes on and will be written when that is done",
                error.lock_file,
            )
            return
        log.warning(
            "MLflow store %s is away (%s); the sweep goes on and will be written when it is back",
            self.shown,
            self._said(error),
        )

    @property
    def shown(self) -> str:
        return redacted(self.tracking_uri)

    def _said(self, error: Exception) -> str:
        return scrubbed(first_line(error), self.tracking_uri)

    def _write_moved(self, ledger: Ledger, writer: Writer) -> None:
        """Write the trials that ended, and those running ones whose turn has come."""
        moved, now = self.inbox.moved, time.monotonic()
        due: dict[str, float] = {}
        for trial_id, words in moved.items():
            trial = ledger.trial(trial_id)
            ended = trial is not None and trial["status"] in STATUS
            if ended or now - words >= self.live_seconds:
                due[trial_id] = words
        if writer.may_take and now >= self._again[0]:
            due |= dict.fromkeys(writer.may_take, now)
        if not due:
            return
        for trial_id in due:  # what is told from now on is to be written again
            moved.pop(trial_id, None)
        try:
            refused = writer.write(list(due))
        except Exception:
            moved |= due
            raise
        later = min(2 * self._again[1], LAST_RETRY) if writer.may_take else FIRST_RETRY
        if now >= self._again[0]:
            self._again = (time.monotonic() + later, later)
        if refused and not self._told:
            self._told = True
            trial_id = next(iter(refused))
            log.warning(
                "MLflow store %s did not take trial %s (%s); the others are written, and it is "
                "tried again",
                self.shown,
                trial_id,
                scrubbed(refused[trial_id], self.tracking_uri),
            )


def is_away(error: BaseException) -> bool:
    """Whether an error means that a store (or the ledger's disk) cannot be used now."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    # Refused and lost runs are handled where they are written; every other MlflowException is
    # the store's. OSError holds refused connections, time-outs and file locks.
    return isinstance(
        error, MlflowException | SQLAlchemyError | OSError | LedgerError | sqlite3.Error
    )


def end_orphans(ledger: Ledger, writer: Writer) -> None:
    """End what dead drivers of this ledger's other sweeps left RUNNING in the same store."""
    unfinished = {
        row["sweep_id"]
        for row in ledger.mlflow_runs(writer.store)
        if row["trial_id"] == PARENT and not row["logged_final"]
    } - {writer.sweep_id}
    for sweep_id in sorted(unfinished):
        name = ledger.sweep(sweep_id)["name"]
        defaults = writer.settings.defaults
        other = Writer(ledger, writer.tracking_uri, sweep_id, name, defaults=defaults)
        try:
            other.lock.acquire(timeout=0)
        except Timeout:  # its driver's writer is at it
            continue
        try:
            if other.driver_is_dead():
                other.reconcile()
                other.write(other.trial_ids())
                other.end("KILLED")
        finally:
            other.lock.release()
