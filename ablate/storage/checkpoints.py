"""Trials' checkpoints in storage, as the driver sees them.

    trials/<trial>.<when>/checkpoint_000003/    one attempt's, which Ray Tune writes from its node

The ledger keeps the newest place of each trial. Its copy in storage may be a minute older than the
checkpoints are, so that a new driver also looks there once for attempts that its ledger has not
heard of. The job of a trial carries the places; the worker takes the newest whole checkpoint.
"""

from __future__ import annotations

import logging
import queue
import re
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ablate.ledger.ledger import Ledger
from ablate.storage.ledger_backup import NOTE, BackupState
from ablate.storage.store import OPTION, Storage, StorageError
from reports.uri import HIDDEN, has_secret
from trainables.core.trial_folder import (
    CONFIG,
    EXPORT,
    LOG,
    RESULT,
    SOURCE,
    TRIALS,
    check_trial_id,
    locate_trial_folder,
)
from trainables.errors import ConfigError
from trainables.jobs.node_folder import copy_checkpoint, find_newest
from trainables.machine.files import join_inside

RESULTS = (LOG, CONFIG, SOURCE, EXPORT, RESULT)  # the last: the rest is here
AGAIN_SECONDS, END_SECONDS = 5.0, 60.0  # after a fault; that the end waits for files

log = logging.getLogger("ablate.engine")


class TrialCheckpoints:
    """Know where checkpoints of trials are, bring results here, and remove what is outdated.

    Files are brought and removed by a thread, one trial after the other.

    Args:
        trials: the driver's folder of trials.
        remote: whether trials run in folders of other nodes, so that results are to be brought.
        tell: called with a line for the user.
    """

    def __init__(
        self,
        storage: Storage,
        ledger: Ledger,
        trials: Path,
        *,
        remote: bool,
        tell: Callable[[str], None],
    ) -> None:
        if remote and has_secret(storage.uri):
            raise ConfigError(
                OPTION,
                f"the password in {storage.shown} would go to every node; leave it out, and give "
                "each node its credentials, as variables or a profile",
            )
        self.storage, self.ledger, self.trials = storage, ledger, trials
        self.remote, self.tell = remote, tell
        self._attempts: dict[str, set[str]] = {}  # trial → folders, as far as known
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_tasks, name="checkpoints", daemon=True)
        self._fault, self._ended_at = "", 0.0

    def __enter__(self) -> TrialCheckpoints:
        """Look for attempts that the ledger has not heard of.

        Raises:
            ConfigError: the storage does not answer.
        """
        try:
            names = self.storage.list_folder(TRIALS)
        except StorageError as error:
            fault = f"{error}; see that it can be reached, and to its rights"
            raise ConfigError(OPTION, fault) from error
        for name in names:
            trial_id, _, when = name.rpartition(".")
            if when.isdigit():
                self._attempts.setdefault(trial_id, set()).add(f"{TRIALS}/{name}")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended_at = time.monotonic()
        self._tasks.put(None)
        self._thread.join(END_SECONDS + AGAIN_SECONDS)
        if self._thread.is_alive() or self._fault:
            self.tell(
                f"warning: storage: not all files of trials have come from {self.storage.shown} "
                f"({self._fault or 'it takes too long'}); they stay there"
            )

    def find_places(self, trial_id: str) -> tuple[str, ...]:
        """Return the folders of a trial's attempts, the newest first."""
        attempts = set(self._attempts.get(trial_id, ()))
        if checkpoint := find_checkpoint(self.ledger, trial_id):
            attempts.add(checkpoint.rpartition("/")[0])
        return tuple(
            sorted(attempts, key=lambda attempt: int(attempt.rpartition(".")[2]), reverse=True)
        )

    def record_checkpoint(self, trial_id: str, checkpoint: str) -> None:
        """Note a checkpoint that has just been stored; Tune removes older ones of the attempt."""
        self._attempts.setdefault(trial_id, set()).add(checkpoint.rpartition("/")[0])
        self.ledger.put_checkpoint(trial_id, checkpoint)

    def finish_trial(self, trial_id: str) -> None:
        """Bring the results of a trial that has ended, and leave only its last checkpoint there."""
        last, attempts = find_checkpoint(self.ledger, trial_id), self.find_places(trial_id)
        if last is not None:
            self._attempts[trial_id] = {last.rpartition("/")[0]}
            self._tasks.put(partial(self._settle_trial, trial_id, last, attempts))

    def _settle_trial(self, trial_id: str, last: str, attempts: tuple[str, ...]) -> None:
        if self.remote:
            fetch_results(self.storage, last, locate_trial_folder(self.trials, trial_id))
        for attempt in attempts:
            outdated = [attempt]
            if last.startswith(f"{attempt}/"):
                outdated = [f"{attempt}/{name}" for name in self.storage.list_folder(attempt)]
            for folder in outdated:
                if folder != last:
                    self.storage.delete_folder(folder)

    def remove_trial(self, trial_id: str) -> None:
        """Remove all that is stored of a trial.

        Raises:
            StorageError: the storage does not answer.
        """
        for attempt in self.find_places(trial_id):
            self.storage.delete_folder(attempt)
        self._attempts.pop(trial_id, None)
        self.ledger.put_checkpoint(trial_id, None)

    def upload_trial(self, trial_id: str) -> None:
        """Store a trial that has ended in the driver's folder alone, for nodes that read it.

        Raises:
            OSError: the storage does not take it.
        """
        folder = locate_trial_folder(self.trials, trial_id)
        if self.find_places(trial_id) or not (folder / RESULT).exists():
            return
        checkpoint = f"{TRIALS}/{check_trial_id(trial_id)}.{time.time_ns()}/checkpoint_000000"
        with tempfile.TemporaryDirectory(prefix=".stored-", dir=folder) as draft:
            copy_checkpoint(folder, Path(draft) / "checkpoint")
            self.storage.put_folder(checkpoint, Path(draft) / "checkpoint")
        self.record_checkpoint(trial_id, checkpoint)

    def fetch_trial(self, trial_id: str) -> None:
        """Bring a trial's results into its folder here, if they are not there.

        Raises:
            OSError: the storage does not answer, or there is no room here.
        """
        folder = locate_trial_folder(self.trials, trial_id)
        if not _has_results(folder):
            place = find_newest(self.storage.files, self.storage.root, self.find_places(trial_id))
            if place is not None:
                fetch_results(self.storage, place, folder)

    def _run_tasks(self) -> None:
        """Do what there is to do, in order. What fails is tried again before the rest, until the
        end has waited long enough for it."""
        while (task := self._tasks.get()) is not None:
            while not self._ended_at or time.monotonic() < self._ended_at + END_SECONDS:
                try:
                    task()
                    self._fault = ""
                    break
                except OSError as error:
                    if not self._fault:
                        log.warning("%s; it is tried again", error)
                    self._fault = str(error)
                    time.sleep(AGAIN_SECONDS)


def find_checkpoint(ledger: Ledger, trial_id: str) -> str | None:
    """Return where in storage a trial's newest checkpoint is, as the ledger says.

    Raises:
        ConfigError: a place that no checkpoint of this trial can have, in a ledger that was edited.
    """
    row = ledger.get_trial(check_trial_id(trial_id))
    if row is None or not row["checkpoint"]:
        return None
    checkpoint = str(row["checkpoint"])
    if not re.fullmatch(rf"{TRIALS}/{re.escape(trial_id)}\.\d+/checkpoint_\d+", checkpoint):
        raise ConfigError(
            str(ledger.path),
            f"{checkpoint[:200]!r} is no checkpoint of trial {trial_id}: the ledger was edited or "
            "damaged; restore it from a copy, or give another --out",
        )
    return checkpoint


def _has_results(folder: Path) -> bool:
    return (folder / EXPORT).exists() and (folder / RESULT).exists()


def fetch_results(storage: Storage, checkpoint: str, folder: Path) -> None:
    """Bring what people and later jobs read of a trial from its last checkpoint into its folder.

    Raises:
        OSError: the storage does not answer, or there is no room here.
    """
    for name in RESULTS:
        storage.download(f"{checkpoint}/{name}", join_inside(folder, name))


def fetch_weights(trials: Path, trial_id: str) -> None:
    """Bring the weights of a trial into its folder here, if they lie in a storage that the ledger
    beside is copied to. An address with a password is noted nowhere, and so not looked at.

    Raises:
        OSError: the storage does not answer, or there is no room here.
    """
    folder, path = locate_trial_folder(trials, trial_id), trials.parent / "ledger.sqlite"
    if _has_results(folder) or not path.is_file():
        return
    with Ledger(path) as ledger:
        checkpoint = find_checkpoint(ledger, trial_id)
    if checkpoint is not None:
        for address in BackupState.read(trials.parent / NOTE).copies:
            if HIDDEN not in address:
                fetch_results(Storage(address), checkpoint, folder)
