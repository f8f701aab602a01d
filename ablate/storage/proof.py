"""A file in storage for each run that is under way, by which a node can tell that its storage is
the driver's: the same path may be another disk there, and the same variable another bucket.

    runs/<id>    as long as the run lasts

It is written anew every hour, so that one a day old is of a driver that was killed.
"""

from __future__ import annotations

from pathlib import Path

from ablate.storage.store import Storage, StorageError
from ablate.storage.trials import away

RUNS = "runs"
ANEW_SECONDS, LEFT_SECONDS = 3600.0, 24 * 3600.0


def prove(storage: Storage, name: str, file: Path) -> None:
    """Put it there, and remove what killed drivers have left.

    name: `runs/<id>`. file: its content; not empty, which is a folder to some storages.

    Raises:
        ConfigError: the storage takes nothing.
    """
    try:
        storage.put(name, file)
        for left in storage.folders(RUNS):
            if storage.now() - storage.written(f"{RUNS}/{left}") > LEFT_SECONDS:
                storage.delete(f"{RUNS}/{left}")
    except StorageError as error:
        raise away(error) from error
