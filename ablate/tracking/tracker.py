"""MLflow as a replica of the ledger: the thread of a driver that keeps it up to date.

The thread has its own connections. Nothing waits for it but the end of a run, and that only as long
as the store takes what is left: whatever it could not write is in the ledger, and the next run of
the sweep or `ablate ledger replay` writes it.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import traceback
from pathlib import Path

from filelock import Timeout

from ablate.ledger.ledger import Ledger
from ablate.ledger.queries import unlogged
from ablate.tracking.payload import Defaults
from ablate.tracking.store import is_damaged, quiet_environment, settle, store_key
from ablate.tracking.sync import EndStatus, Refusal, Replica, end_orphans, first_line, is_away
from reports.uri import redacted, scrubbed

INTERVAL_SECONDS = 5.0
DRAIN_SECONDS = 60.0
LONGEST_DRAIN = 10  # times as long, while the store takes trials
RETRY_SECONDS = 0.5  # between two tries when closing
LAST_SECONDS = 1.0
log = logging.getLogger("ablate.tracking")


class TrackingError(RuntimeError):
    """The thread that writes MLflow failed by a bug; the ledger has everything."""


class MlflowTracker:
    """A tracker for MLflow: the thread that keeps a sweep's runs up to date.

    Args:
        ledger_path: the ledger.
        tracking_uri: any MLflow tracking URI.
        sweep_id: a sweep that the ledger knows (`Ledger.put_sweep`).
        experiment: the experiment's name (the spec's name).
        interval: seconds between two looks at what has changed.
        drain_seconds: how long `close` waits for a store that takes nothing.
        remedy: the command that writes later what could not be written.
        defaults: those of settings, which are then no parameters (`payload.Settings`).

    A store that is away costs one warning, and so does one that is damaged, which is given up.
    Nothing is raised into the sweep: a bug costs a warning, and `close` raises it.
    """

    def __init__(
        self,
        ledger_path: str | Path,
        tracking_uri: str,
        sweep_id: str,
        experiment: str,
        *,
        interval: float = INTERVAL_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
        remedy: str = "`ablate ledger replay`",
        defaults: Defaults | None = None,
    ) -> None:
        self.ledger_path, self.tracking_uri = Path(ledger_path), tracking_uri
        self.sweep_id, self.experiment = sweep_id, experiment
        self.interval, self.drain_seconds = interval, drain_seconds
        self.remedy, self.defaults = remedy, defaults
        self._changed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._status: EndStatus | None = None
        self._given_up = threading.Event()  # `close` waits no longer
        self._is_away = False
        self._refused: dict[str, Refusal] = {}
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)

    def start(self) -> None:
        """Start the thread, which first writes all that the ledger has."""
        quiet_environment()
        self._thread.start()

    def notify(self, trial_id: str) -> None:
        """Note that a trial has changed in the ledger. Cheap; any thread."""
        self._changed.put(trial_id)

    def close(self, status: EndStatus = "FINISHED") -> bool:
        """Write what is left and end the parent run with `status`.

        Returns:
            Whether MLflow has everything; otherwise a warning has said how to write the rest.

        Raises:
            TrackingError: the thread failed by a bug.
        """
        self._status = status
        self._closing.set()
        last = time.monotonic() + LONGEST_DRAIN * self.drain_seconds
        lacking = self._count_unlogged()
        while True:
            self._thread.join(self.drain_seconds)
            before, lacking = lacking, self._count_unlogged()
            if not self._thread.is_alive() or lacking >= before or time.monotonic() >= last:
                break
        is_late = self._thread.is_alive()
        self._given_up.set()
        self._thread.join(LAST_SECONDS)  # unless it is within a request, it closes its ledger
        if self._refused and not self._is_away:
            trial_id, refusal = next(iter(self._refused.items()))
            self._warn(
                f"refused {len(self._refused)} of the sweep's trials, as {trial_id} "
                f"({refusal.reason}); the ledger has everything: {self.remedy} writes what it then "
                "takes"
            )
        elif is_late:
            self._warn(
                f"is still {'away' if self._is_away else 'taking trials'}; the ledger has "
                f"everything: {self.remedy} writes the {lacking} ended trials that MLflow lacks"
            )
        if self._error is not None:
            text = scrubbed(f"{type(self._error).__name__}: {self._error}", self.tracking_uri)
            raise TrackingError(
                f"MLflow tracking stopped ({text}); the ledger has everything, and {self.remedy} "
                "writes it"
            ) from self._error
        return not (is_late or self._is_away or self._refused)

    def _run(self) -> None:
        try:
            with Ledger(self.ledger_path) as ledger:
                self._keep_up(
                    Replica(
                        ledger,
                        self.tracking_uri,
                        self.sweep_id,
                        self.experiment,
                        defaults=self.defaults,
                    )
                )
        except BaseException as error:
            self._error = error
            text = f"{type(error).__name__}: {error}; the sweep goes on\n{traceback.format_exc()}"
            log.warning("MLflow tracking stopped: %s", scrubbed(text, self.tracking_uri))

    def _keep_up(self, replica: Replica) -> None:
        """Write what has changed every `interval` seconds, and all that is left when closing."""
        changed: set[str] = set()
        has_begun = False
        while not self._given_up.is_set():
            # Even if there was no time before: what a store takes only if asked again is asked for.
            status = self._status if has_begun and self._closing.is_set() else None
            with contextlib.suppress(queue.Empty):
                while True:
                    changed.add(self._changed.get_nowait())
            wants_all = status is not None or not has_begun
            try:
                replica.sync(None if wants_all else {*changed, *replica.may_take}, status=status)
                if not has_begun:
                    end_orphans(replica)
            except Exception as error:
                if not is_away(error):
                    raise
                if is_damaged(error):
                    self._is_away = True
                    remedy = self.remedy.replace("ledger replay", "ledger replay --rebuild", 1)
                    self._warn(
                        f"is damaged ({first_line(error)}); the sweep goes on, and the ledger has "
                        f"everything: {remedy} moves the store aside and writes it anew"
                    )
                    return
                if not self._is_away:
                    reason = first_line(error)
                    if isinstance(error, Timeout):
                        reason = f"another process holds {error.lock_file}"
                    self._warn(
                        f"is away ({reason}); the sweep goes on and will be written when it is back"
                    )
                self._is_away = True
            else:
                has_begun = True
                changed.clear()
                self._report_success(replica)
                if status is not None and not replica.may_take:
                    settle(self.tracking_uri)
                    return
            if self._closing.is_set():
                self._given_up.wait(RETRY_SECONDS if self._is_away or self._refused else 0)
            else:
                self._closing.wait(self.interval)

    def _report_success(self, replica: Replica) -> None:
        if self._is_away:
            self._is_away = False
            self._warn("is back; nothing was lost")
        if replica.may_take and not self._refused and not self._closing.is_set():
            trial_id = replica.may_take[0]
            self._warn(
                f"did not take trial {trial_id} ({replica.refused[trial_id].reason}); the others "
                "are written, and it is tried again"
            )
        self._refused = dict(replica.refused)

    def _warn(self, text: str) -> None:
        uri = self.tracking_uri
        log.warning("MLflow store %s %s", redacted(uri), scrubbed(text, uri))

    def _count_unlogged(self) -> int:
        with Ledger(self.ledger_path) as ledger:
            return unlogged(ledger, store_key(self.tracking_uri), self.sweep_id)
