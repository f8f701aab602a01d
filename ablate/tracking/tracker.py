"""Keep MLflow up to date with the ledger, from a thread of the driver.

Only the end of a run waits for it, and only while the store accepts data. The next run of the sweep
or `ablate ledger replay` writes the rest.
"""

import contextlib
import logging
import math
import queue
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from ablate.ledger.ledger import Ledger
from ablate.ledger.queries import count_unlogged
from ablate.ledger.sqlite_files import fold_journal
from ablate.tracking.payload import Defaults
from ablate.tracking.store import find_sqlite_file, store_key
from ablate.tracking.sync import EndStatus, MlflowSync, extract_first_line, is_away
from reports.uri import redact_text, redact_uri

RETRY_SECONDS = 0.5  # between two tries when closing
LAST_SECONDS = 1.0  # that `close` waits for a thread that was given up
log = logging.getLogger("ablate.tracking")


class TrackingError(RuntimeError):
    """A bug in the thread that writes MLflow; the ledger is complete."""


@dataclass
class MlflowTracker:
    """Run the thread that keeps the MLflow runs of a sweep up to date.

    A store that does not answer causes one warning. A bug causes a warning, and `close` raises it.
    """

    ledger_path: Path
    tracking_uri: str
    sweep_id: str  # one that the ledger has (`Ledger.put_sweep`)
    interval: float = 5.0  # seconds between two writes
    drain_seconds: float = 60.0  # that `close` waits for a store that takes nothing
    remedy: str = "`ablate ledger replay`"  # the command that writes later what is missing
    defaults: Defaults = field(default_factory=dict)  # settings with these values are not logged

    def __post_init__(self) -> None:
        self._changed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._status: EndStatus | None = None
        self._given_up = threading.Event()  # `close` waits no longer
        self._is_away = False
        self._refused: dict[str, str] = {}  # trial → reason
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_thread, name="mlflow", daemon=True)

    def start(self) -> None:
        """Start the thread, which first writes everything in the ledger."""
        self._thread.start()

    def notify(self, trial_id: str) -> None:
        """Tell the thread, from any thread, that a trial has changed in the ledger."""
        self._changed.put(trial_id)

    def close(self, status: EndStatus = "FINISHED") -> bool:
        """Write the rest, and end the parent run with `status`.

        Returns:
            Whether MLflow has everything; otherwise a warning has said how to write the rest.

        Raises:
            TrackingError: the thread has failed.
        """
        self._status = status
        self._closing.set()
        # wait as long as the store takes trials
        lacking, before = self._count_unlogged(), math.inf
        while lacking < before and self._thread.is_alive():
            self._thread.join(self.drain_seconds)
            before, lacking = lacking, self._count_unlogged()
        is_late = self._thread.is_alive()
        self._given_up.set()
        self._thread.join(LAST_SECONDS)  # unless it is within a request, it closes its ledger
        # say what MLflow lacks
        fault = f"is still {'away' if self._is_away else 'taking trials'}" if is_late else ""
        if self._refused and not self._is_away:
            trial_id, reason = next(iter(self._refused.items()))
            fault = f"refused {len(self._refused)} of the sweep's trials, as {trial_id} ({reason})"
        if fault:
            self._warn(
                f"{fault}. The ledger has everything: {self.remedy} writes the {lacking} ended "
                "trials that MLflow lacks."
            )
        if self._error is not None:
            text = redact_text(f"{type(self._error).__name__}: {self._error}", self.tracking_uri)
            raise TrackingError(
                f"MLflow tracking stopped ({text}). The ledger has everything: {self.remedy} "
                "writes it."
            ) from self._error
        return not (is_late or self._is_away or self._refused)

    def _run_thread(self) -> None:
        """Write to MLflow until `close`; keep an error for `close`, and warn of it."""
        try:
            with Ledger(self.ledger_path) as ledger:
                self._sync_until_closed(
                    MlflowSync(ledger, self.tracking_uri, self.sweep_id, self.defaults)
                )
        except BaseException as error:
            self._error = error
            text = f"{type(error).__name__}: {error}; the sweep goes on\n{traceback.format_exc()}"
            log.warning("MLflow tracking stopped: %s", redact_text(text, self.tracking_uri))

    def _sync_until_closed(self, replica: MlflowSync) -> None:
        """Write changes every `interval` seconds, and the rest at the end."""
        changed: set[str] = set()
        has_begun = False
        while not self._given_up.is_set():
            # the first write is of all trials and does not end the parent run
            status = self._status if has_begun and self._closing.is_set() else None
            with contextlib.suppress(queue.Empty):
                while True:
                    changed.add(self._changed.get_nowait())
            writes_all = status is not None or not has_begun
            try:
                replica.sync(None if writes_all else changed, status=status)
            except Exception as error:
                if not is_away(error):
                    raise
                if not self._is_away:
                    reason = extract_first_line(error)
                    self._warn(f"is away ({reason}). The sweep goes on and is written later.")
                self._is_away = True
            else:
                if self._is_away:
                    self._warn("is back; nothing was lost.")
                self._is_away = False
                has_begun = True
                changed.clear()
                self._refused = dict(replica.refused)
                if status is not None:
                    if (path := find_sqlite_file(self.tracking_uri)) is not None:
                        fold_journal(path)
                    return
            # wait for the next write, or at the end for the next try
            if self._closing.is_set():
                self._given_up.wait(RETRY_SECONDS if self._is_away else 0)
            else:
                self._closing.wait(self.interval)

    def _warn(self, text: str) -> None:
        uri = self.tracking_uri
        log.warning("MLflow store %s %s", redact_uri(uri), redact_text(text, uri))

    def _count_unlogged(self) -> int:
        with Ledger(self.ledger_path) as ledger:
            return count_unlogged(ledger, store_key(self.tracking_uri), self.sweep_id)
