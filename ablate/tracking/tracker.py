"""Keep a tracker up to date with the ledger, from a thread of the driver.

Only the end of a run waits for it, and only while the store accepts data. The next run of the sweep
or `ablate ledger replay` writes the rest.
"""

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
from ablate.ledger.schema import LedgerDamage, LedgerError
from ablate.tracking.base import EndStatus, Tracker, extract_first_line
from trainables.words.errors import ConfigError

RETRY_SECONDS = 0.5  # between two tries when closing
LAST_SECONDS = 1.0  # that `close` waits for a thread that was given up
log = logging.getLogger("ablate.tracking")


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
