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
        """Prepare the thread, and what it shares with `notify` and `close`."""
        self._changed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._status: EndStatus | None = None
        self._given_up = threading.Event()  # `close` waits no longer
        self._is_away = False  # whether the store did not answer at the last try
        self._refused: dict[str, str] = {}  # trial → why the store refuses its run
        self._error: BaseException | None = None  # which ended the thread
        self._thread = threading.Thread(target=self._run_thread, name="mlflow", daemon=True)

    def start(self) -> None:
        """Start the thread, which first writes everything in the ledger."""
        self._thread.start()

    def notify(self, trial_id: str) -> None:
        """Tell the thread, from any thread, that a trial has changed in the ledger."""
        self._changed.put(trial_id)

    def close(self, status: EndStatus = "FINISHED") -> bool:
        """Let the thread write the rest and end the sweep's run with `status`; wait for the thread.

        Returns:
            Whether MLflow has everything; otherwise a warning has said how to write the rest.

        Raises:
            TrackingError: an unexpected error has ended the thread before.
        """
        self._status = status
        self._closing.set()
        # wait as long as the number of trials that MLflow lacks goes down
        lacking, before = self._count_unlogged(), math.inf
        while lacking < before and self._thread.is_alive():
            self._thread.join(self.drain_seconds)
            before, lacking = lacking, self._count_unlogged()
        is_late = self._thread.is_alive()
        self._given_up.set()
        self._thread.join(LAST_SECONDS)  # time for the thread to close the ledger
        # say what MLflow lacks
        fault = ""
        if is_late:
            fault = "the store does not answer" if self._is_away else "the store is still busy"
        if self._refused and not self._is_away:
            n, (trial_id, reason) = len(self._refused), next(iter(self._refused.items()))
            fault = f"the store refused {n} of the sweep's trials, such as {trial_id} ({reason})"
        if fault:
            self._warn(
                f"{fault}. The ledger has all results: {self.remedy} writes the {lacking} ended "
                "trials that MLflow lacks."
            )
        if self._error is not None:
            text = redact_text(f"{type(self._error).__name__}: {self._error}", self.tracking_uri)
            raise TrackingError(
                f"MLflow tracking stopped ({text}). The ledger has all results: {self.remedy} "
                "writes them to MLflow."
            ) from self._error
        return not (is_late or self._is_away or self._refused)

    def _run_thread(self) -> None:
        """Write changes to MLflow until `close`; log an unexpected error, which `close` raises."""
        try:
            with Ledger(self.ledger_path) as ledger:
                self._sync_until_closed(
                    MlflowSync(ledger, self.tracking_uri, self.sweep_id, self.defaults)
                )
        except BaseException as error:
            self._error = error
            text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            text = redact_text(text, self.tracking_uri)
            log.warning("MLflow tracking has stopped, and the sweep goes on without it: %s", text)

    def _sync_until_closed(self, mlflow_sync: MlflowSync) -> None:
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
                mlflow_sync.sync(None if writes_all else changed, status=status)
            except Exception as error:
                if not is_away(error):
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
                self._refused = dict(mlflow_sync.refused)
                if status is not None:
                    if (path := find_sqlite_file(self.tracking_uri)) is not None:
                        fold_journal(path)  # so that users can copy this single file
                    return
            # wait for the next write, or at the end for the next try
            if self._closing.is_set():
                self._given_up.wait(RETRY_SECONDS if self._is_away else 0)
            else:
                self._closing.wait(self.interval)

    def _warn(self, text: str) -> None:
        uri = self.tracking_uri
        log.warning("MLflow store %s: %s", redact_uri(uri), redact_text(text, uri))

    def _count_unlogged(self) -> int:
        with Ledger(self.ledger_path) as ledger:
            return count_unlogged(ledger, store_key(self.tracking_uri), self.sweep_id)
