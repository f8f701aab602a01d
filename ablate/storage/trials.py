"""Trials' files in storage, as the driver sees them: `trials/<id>/`, as in its own folder.

Nodes that do not see that folder write them there (`trainables/jobs/nodes/mirror.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

from ablate.storage.copies import NOTE
from ablate.storage.store import OPTION, Storage, StorageError
from ablate.storage.word import Note
from reports.uri import HIDDEN
from trainables.core.runtime import EXPORT
from trainables.core.trial_folder import TRIALS, check_trial_id, trial_folder
from trainables.errors import ConfigError
from trainables.jobs.nodes.trial_files import FINAL, RUN_LOG
from trainables.machine.files import inside

TRAINED = ("provenance", "seconds", "best_epoch", "history")  # what a result says of its training
SMALL = (RUN_LOG, "config.json", "source.json", FINAL)
WHOLE = ("config.json", "source.json", EXPORT, FINAL)  # the last says that the rest is there


def stored(storage: Storage) -> bool:
    """Whether there are any.

    Raises:
        ConfigError: the storage does not answer.
    """
    try:
        return bool(storage.folders(TRIALS))
    except StorageError as error:
        raise away(error) from error


def bring(storage: Storage, trials: Path, trial_id: str, names: Iterable[str]) -> list[str]:
    """These files of a trial, as far as they are there, into its folder here; which were. A result
    that comes without its weights leaves none here of an earlier training.

    Raises:
        OSError: the storage does not answer, or there is no room here.
    """
    folder, names = trial_folder(trials, trial_id), list(names)
    alone = FINAL in names and EXPORT not in names
    if alone and _whole(trials, trial_id) and _is_another(storage, folder, trial_id):
        (folder / EXPORT).unlink()
    return [name for name in names if storage.get(f"{_key(trial_id)}/{name}", inside(folder, name))]


def weights_here(trials: Path, trial_id: str) -> None:
    """The weights of a trial into its folder here, if they lie in a storage that the ledger beside
    is copied to. An address with a password is noted nowhere, and so not looked at.

    Raises:
        OSError: the storage does not answer, or there is no room here.
    """
    if _whole(trials, trial_id):
        return
    for place in Note.read(trials.parent / NOTE).copies:
        if HIDDEN not in place:
            fetch(Storage(place), trials, trial_id)


def fetch(storage: Storage, trials: Path, trial_id: str) -> None:
    """The weights of a trial into its folder here, if they are not there.

    Raises:
        OSError: as `weights_here`.
    """
    if not _whole(trials, trial_id):
        bring(storage, trials, trial_id, WHOLE)


def _key(trial_id: str) -> str:
    """Return where a trial's files lie in storage."""
    return f"{TRIALS}/{check_trial_id(trial_id)}"


def _whole(trials: Path, trial_id: str) -> bool:
    """Whether both are here: whoever was killed while fetching has left the weights alone, and
    results come alone too."""
    folder = trial_folder(trials, trial_id)
    return (folder / EXPORT).exists() and (folder / FINAL).exists()


def lacks(storage: Storage, trials: Path, trial_id: str) -> bool:
    """Whether a trial that has ended in this folder is yet to go to storage. What an earlier
    training of it has left there is removed, as nobody is to read it any more.

    Raises:
        StorageError: it does not answer.
    """
    folder = trial_folder(trials, trial_id)
    if not (folder / EXPORT).exists():
        return False
    there = storage.listed(_key(trial_id))
    if EXPORT not in there or not (folder / FINAL).exists():
        return EXPORT not in there
    if FINAL not in there:
        return True
    ended = storage.now() - (time.time() - (folder / FINAL).stat().st_mtime)  # by its clock
    later = ended > there[FINAL].at
    if not later or not _is_another(storage, folder, trial_id):
        return False
    forget(storage, trial_id)
    return True


def offer(storage: Storage, trials: Path, trial_id: str) -> None:
    """A trial that has ended in this folder, to storage, if that lacks it.

    Raises:
        StorageError: it does not take it.
    """
    if not lacks(storage, trials, trial_id):
        return
    folder = trial_folder(trials, trial_id)
    for name in WHOLE:
        if (folder / name).exists():
            storage.put(f"{_key(trial_id)}/{name}", folder / name)


def _is_another(storage: Storage, folder: Path, trial_id: str) -> bool:
    """Whether storage has the result of another training than this one, whatever was read since."""
    there = storage.read(f"{_key(trial_id)}/{FINAL}")
    return there is not None and _training(there) != _training((folder / FINAL).read_bytes())


def _training(result: bytes) -> object:
    try:
        told = json.loads(result)
        return {name: told.get(name) for name in TRAINED}
    except (ValueError, AttributeError):
        return result  # none of ours, or damaged: the same only if it is the same


def forget(storage: Storage, trial_id: str) -> None:
    """Remove all that is there of a trial, what tells of its end first.

    Raises:
        StorageError: it does not answer.
    """
    names = storage.listed(_key(trial_id))
    for name in sorted(names, key=lambda name: name != FINAL):
        storage.delete(f"{_key(trial_id)}/{name}")


def away(error: StorageError) -> ConfigError:
    """Before any trial starts."""
    return ConfigError(
        OPTION, str(error), "a storage that answers", "See that it can be reached, and its rights"
    )
