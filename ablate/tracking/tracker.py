"""Keep MLflow up to date with the ledger, from a thread of the driver.

Only the end of a run waits for it, and only while the store accepts data. The next run of the sweep
or `ablate ledger replay` writes the rest.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

from ablate.ledger.ledger import Ledger
from ablate.ledger.queries import count_unlogged
from ablate.tracking.payload import Defaults
from ablate.tracking.store import checkpoint_journal, store_key
from ablate.tracking.sync import EndStatus, MlflowSync, extract_first_line, is_away
from reports.uri import redact_text, redact_uri

INTERVAL_SECONDS = 5.0
DRAIN_SECONDS = 60.0
RETRY_SECONDS = 0.5  # between two tries when closing
LAST_SECONDS = 1.0
log = logging.getLogger("ablate.tracking")


class TrackingError(RuntimeError):
    """A bug in the thread that writes MLflow; the ledger is complete."""


@dataclass
class MlflowTracker:
    """The thread that keeps the MLflow runs of a sweep up to date.

    A store that does not answer causes one warning. A bug causes a warning, and `close` raises it.
    """

    ledger_path: Path
    tracking_uri: str
    sweep_id: str  # one that the ledger knows (`Ledger.put_sweep`)
    experiment: str  # its name (the spec's)
    interval: float = INTERVAL_SECONDS  # between two looks at what has changed
    drain_seconds: float = DRAIN_SECONDS  # that `close` waits for a store that takes nothing
    remedy: str = "`ablate ledger replay`"  # what writes later what could not be written
    defaults: Defaults | None = None  # of settings, which are then no parameters

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
        """Note that a trial has changed in the ledger. This is cheap and can be called by any
        thread."""
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
        lacking, before = self._count_unlogged(), math.inf
        while lacking < before and self._thread.is_alive():
            self._thread.join(self.drain_seconds)
            before, lacking = lacking, self._count_unlogged()
        is_late = self._thread.is_alive()
        self._given_up.set()
        self._thread.join(LAST_SECONDS)  # unless it is within a request, it closes its ledger
        if self._refused and not self._is_away:
            trial_id, reason = next(iter(self._refused.items()))
            self._warn_once(
                f"refused {len(self._refused)} of the sweep's trials, as {trial_id} ({reason}); "
                f"the ledger has everything: {self.remedy} writes what it then takes"
            )
        elif is_late:
            self._warn_once(
                f"is still {'away' if self._is_away else 'taking trials'}; the ledger has "
                f"everything: {self.remedy} writes the {lacking} ended trials that MLflow lacks"
            )
        if self._error is not None:
            text = redact_text(f"{type(self._error).__name__}: {self._error}", self.tracking_uri)
            raise TrackingError(
                f"MLflow tracking stopped ({text}); the ledger has everything, and {self.remedy} "
                "writes it"
            ) from self._error
        return not (is_late or self._is_away or self._refused)

    def _run_thread(self) -> None:
        named = self.tracking_uri, self.sweep_id, self.experiment
        try:
            with Ledger(self.ledger_path) as ledger:
                self._sync_until_closed(MlflowSync(ledger, *named, defaults=self.defaults))
        except BaseException as error:
            self._error = error
            text = f"{type(error).__name__}: {error}; the sweep goes on\n{traceback.format_exc()}"
            log.warning("MLflow tracking stopped: %s", redact_text(text, self.tracking_uri))

    def _sync_until_closed(self, replica: MlflowSync) -> None:
        """Write changes every `interval` seconds, and the rest at the end."""
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
                replica.sync(None if wants_all else changed, status=status)
            except Exception as error:
                if not is_away(error):
                    raise
                if not self._is_away:
                    self._warn_once(
                        f"is away ({extract_first_line(error)}); the sweep goes on and will be "
                        "written when it is back"
                    )
                self._is_away = True
            else:
                if self._is_away:
                    self._is_away = False
                    self._warn_once("is back; nothing was lost")
                has_begun = True
                changed.clear()
                self._refused = dict(replica.refused)
                if status is not None:
                    checkpoint_journal(self.tracking_uri)
                    return
            if self._closing.is_set():
                self._given_up.wait(RETRY_SECONDS if self._is_away else 0)
            else:
                self._closing.wait(self.interval)

    def _warn_once(self, text: str) -> None:
        uri = self.tracking_uri
        log.warning("MLflow store %s %s", redact_uri(uri), redact_text(text, uri))

    def _count_unlogged(self) -> int:
        with Ledger(self.ledger_path) as ledger:
            return count_unlogged(ledger, store_key(self.tracking_uri), self.sweep_id)
