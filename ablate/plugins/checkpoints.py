"""Track checkpoints of trials in storage, from the driver's side.

    trials/<trial>.<time>/checkpoint_000003/    of one attempt; Ray Tune writes it from the node

The ledger records the newest checkpoint of each trial. The copy of the ledger in storage can be a
minute older than the checkpoints, so a new driver also lists the storage once. The job of a trial
carries the folders of its attempts, and the worker restores the newest complete checkpoint.
"""

import logging
import queue
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ablate.ledger.ledger import Ledger
from ablate.plugins.storage import (
    LEDGER,
    NOTE,
    BackupState,
    LedgerBackup,
    Storage,
    StorageError,
)
from ablate.storage import OPTION, STORAGES, RunStorage
from trainables.core.runtime import (
    CONFIG,
    EXPORT,
    LOG,
    RESULT,
    SOURCE,
    TRIALS,
    check_trial_id,
    locate_trial_folder,
)
from trainables.jobs.node_folder import copy_checkpoint, find_newest
from trainables.words.errors import ConfigError
from trainables.words.files import join_inside
from trainables.words.secrets import HIDDEN, has_secret

RESULTS = (LOG, CONFIG, SOURCE, EXPORT, RESULT)  # RESULT last: it shows that the others are here
AGAIN_SECONDS = 5.0  # between two attempts of a file transfer
END_SECONDS = 60.0  # for file transfers at the end of a run

log = logging.getLogger("ablate.engine")


class TrialCheckpoints:
    """Locate checkpoints of trials, download results, and delete outdated checkpoints.

    A thread downloads and deletes files, one trial after the other.

    Args:
        trials: the driver's folder of trials.
        remote: whether trials run in folders of other nodes, so that results must be downloaded.
        print_line: receives lines for the user.
    """

    def __init__(
        self,
        storage: Storage,
        ledger: Ledger,
        trials: Path,
        *,
        remote: bool,
        print_line: Callable[[str], None],
    ) -> None:
        """Prepare the thread; refuse a password in `storage` that other nodes would receive."""
        if remote and has_secret(storage.uri):
            raise ConfigError(
                OPTION,
                f"the password in {storage} would be sent to every node",
                "Leave the password out, and give each node its credentials as environment "
                "variables or a profile",
            )
        self.storage, self.ledger, self.trials = storage, ledger, trials
        self.address = storage.address
        self.remote, self.print_line = remote, print_line
        self._attempts: dict[str, set[str]] = {}  # trial → known folders in storage
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_tasks, name="checkpoints", daemon=True)
        self._fault, self._ended_at = "", 0.0  # fault of the last transfer; time of the run's end

    def __enter__(self) -> "TrialCheckpoints":
        """List the attempts of trials in storage, which the ledger may lack, and start the thread.

        Raises:
            ConfigError: the storage does not answer.
        """
        try:
            names = self.storage.list_folder(TRIALS)
        except StorageError as error:
            raise ConfigError(
                OPTION, str(error), "Check the storage's address and access rights"
            ) from error
        for name in names:  # <trial>.<time>
            trial_id, _, started = name.rpartition(".")
            if started.isdigit():
                self._attempts.setdefault(trial_id, set()).add(f"{TRIALS}/{name}")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait up to a minute for the thread's scheduled transfers; warn if some have failed."""
        self._ended_at = time.monotonic()
        self._tasks.put(None)
        self._thread.join(END_SECONDS + AGAIN_SECONDS)
        if self._thread.is_alive() or self._fault:
            self.print_line(
                f"warning: storage: some files of trials were not downloaded from {self.storage} "
                f"({self._fault or 'the transfer takes too long'}). They stay in the storage."
            )

    def list_attempts(self, trial_id: str) -> tuple[str, ...]:
        """Return the folder in storage of each attempt at a trial, the newest first."""
        attempts = set(self._attempts.get(trial_id, ()))
        if checkpoint := find_checkpoint(self.ledger, trial_id):
            attempts.add(checkpoint.rpartition("/")[0])  # without `/checkpoint_<number>`
        return tuple(sorted(attempts, key=lambda path: int(path.rpartition(".")[2]), reverse=True))

    def record_checkpoint(self, trial_id: str, checkpoint: str) -> None:
        """Record a new checkpoint in the ledger; Tune deletes older ones of the same attempt."""
        self._attempts.setdefault(trial_id, set()).add(checkpoint.rpartition("/")[0])
        self.ledger.put_checkpoint(trial_id, checkpoint)

    def finish_trial(self, trial_id: str) -> None:
        """Let the thread download an ended trial's results and delete its older checkpoints."""
        last, attempts = find_checkpoint(self.ledger, trial_id), self.list_attempts(trial_id)
        if last is not None:  # `trials/<trial>.<time>/checkpoint_<number>`
            self._attempts[trial_id] = {last.rpartition("/")[0]}
            self._tasks.put(partial(self._fetch_and_clean, trial_id, last, attempts))

    def _fetch_and_clean(self, trial_id: str, last: str, attempts: tuple[str, ...]) -> None:
        """Download results that other nodes made; delete a trial's checkpoints except `last`."""
        if self.remote:
            fetch_results(self.storage, last, locate_trial_folder(self.trials, trial_id))
        # delete the folders of earlier attempts, and the earlier checkpoints of the last attempt
        last_attempt = last.rpartition("/")[0]
        siblings = [f"{last_attempt}/{name}" for name in self.storage.list_folder(last_attempt)]
        for folder in {*attempts, *siblings} - {last, last_attempt}:
            self.storage.delete_folder(folder)

    def remove_trial(self, trial_id: str) -> None:
        """Delete all checkpoints of a trial from storage, and their path from the ledger."""
        for attempt in self.list_attempts(trial_id):
            self.storage.delete_folder(attempt)
        self._attempts.pop(trial_id, None)
        self.ledger.put_checkpoint(trial_id, None)

    def upload_trial(self, trial_id: str) -> None:
        """Upload a trial that this machine finished without storage, so that nodes can read it."""
        folder = locate_trial_folder(self.trials, trial_id)
        if self.list_attempts(trial_id) or not (folder / RESULT).exists():
            return  # it is in storage already, or has not finished here
        checkpoint = f"{TRIALS}/{check_trial_id(trial_id)}.{time.time_ns()}/checkpoint_000000"
        with tempfile.TemporaryDirectory(prefix=".stored-", dir=folder) as draft:
            copy_checkpoint(folder, Path(draft) / "checkpoint")
            self.storage.put_folder(checkpoint, Path(draft) / "checkpoint")
        self.record_checkpoint(trial_id, checkpoint)

    def fetch_trial(self, trial_id: str) -> None:
        """Download a trial's results from its newest checkpoint, unless they are here already."""
        folder = locate_trial_folder(self.trials, trial_id)
        if not _has_results(folder):
            attempts = self.list_attempts(trial_id)
            checkpoint = find_newest(self.storage.files, self.storage.root, attempts)
            if checkpoint is not None:
                fetch_results(self.storage, checkpoint, folder)

    def _run_tasks(self) -> None:
        """Run scheduled transfers in order, and retry a failed one until the storage answers.

        After the run's end (`_ended_at` is set, None follows in the queue) it retries for a minute.
        """
        while (task := self._tasks.get()) is not None:
            while not self._ended_at or time.monotonic() < self._ended_at + END_SECONDS:
                try:
                    task()
                    self._fault = ""
                    break
                except OSError as error:
                    if not self._fault:
                        log.warning("%s. The transfer is tried again.", error)
                    self._fault = str(error)
                    time.sleep(AGAIN_SECONDS)


def find_checkpoint(ledger: Ledger, trial_id: str) -> str | None:
    """Return the path in storage of a trial's newest checkpoint, as recorded in the ledger.

    The path is checked before use, because files are read and deleted there.
    """
    row = ledger.get_trial(check_trial_id(trial_id))
    if row is None or not row["checkpoint"]:
        return None
    checkpoint = str(row["checkpoint"])
    if not re.fullmatch(rf"{TRIALS}/{re.escape(trial_id)}\.\d+/checkpoint_\d+", checkpoint):
        raise ConfigError(
            str(ledger.path),
            f"{checkpoint[:200]!r} is recorded for trial {trial_id}, but is not its checkpoint",
            "Restore the ledger from a copy, or give another --out",
        )
    return checkpoint


def _has_results(folder: Path) -> bool:
    return (folder / EXPORT).exists() and (folder / RESULT).exists()


def fetch_results(storage: Storage, checkpoint: str, folder: Path) -> None:
    """Download the files of a finished trial from its last checkpoint into a local folder."""
    for name in RESULTS:
        storage.download(f"{checkpoint}/{name}", join_inside(folder, name))


@STORAGES.register("")
@dataclass
class FileStorage(RunStorage):
    """Files in a folder or a bucket, through pyarrow."""

    def __post_init__(self) -> None:
        """Prepare the copies of the ledger; nothing is read or written."""
        self._backup = LedgerBackup(
            Storage(self.address),
            self.out / LEDGER,
            self.owner,
            self.print_line,
            list_other_drivers=self.list_other_drivers,
        )

    def restore_ledger(self) -> None:
        self._backup.restore_if_newer()

    @contextmanager
    def keep(self, ledger: Ledger) -> Iterator[TrialCheckpoints]:
        """Keep copies of the ledger and of trials for as long as the context lasts."""
        trials = (self.out / TRIALS).resolve()
        with self._backup as backup:
            checkpoints = TrialCheckpoints(
                backup.storage, ledger, trials, remote=self.remote, print_line=self.print_line
            )
            with checkpoints:
                yield checkpoints

    @staticmethod
    def fetch_weights(trials: Path, trial_id: str) -> None:
        """Download a trial's results, with its weights, from a storage with copies of the ledger.

        A storage whose address has a password is skipped, because the password was not recorded.
        """
        folder, path = locate_trial_folder(trials, trial_id), trials.parent / LEDGER
        if _has_results(folder) or not path.is_file():
            return
        with Ledger(path) as ledger:
            checkpoint = find_checkpoint(ledger, trial_id)
        if checkpoint is not None:
            for address in BackupState.read(trials.parent / NOTE).copies:
                if HIDDEN not in address and not _has_results(folder):
                    fetch_results(Storage(address), checkpoint, folder)
