"""`ablate data push NAME --storage URI`: a data set for nodes that do not have it."""

from __future__ import annotations

import tempfile

from ablate.ledger.schema import is_full
from ablate.storage.store import OPTION, Storage, StorageError
from ablate.values.terminal import progress_shown, say
from trainables.config.images import DataConfig
from trainables.data.cache import required
from trainables.data.dataset import fingerprint
from trainables.errors import ConfigError
from trainables.jobs.nodes.parcels import PART, place_of, push, root_here
from trainables.machine.cache_folder import default_cache


def pushed(config: DataConfig, storage: str | None) -> int:
    """Send it as it is here; what is there already is not sent again.

    Raises:
        ConfigError: no storage is given, it does not take it, the data set is not here or cannot be
            read, or there is no room for a draft of one part.
    """
    if storage is None:
        raise ConfigError(OPTION, "nothing", "where nodes find it", "Give the run's --storage")
    store, cache = Storage(storage), default_cache()
    root_here(config)
    with required(cache), progress_shown():
        found = fingerprint(config, cache)
    where = f"{store.shown} ({place_of(config.name, found)})"
    try:
        files, size = push(store, config, found)
    except StorageError as error:
        raise ConfigError(
            OPTION, str(error), "a storage that takes a data set", "See to its rights and its room"
        ) from error
    except OSError as error:
        drafts = tempfile.gettempdir()
        raise ConfigError(
            drafts if is_full(error) else str(error.filename or root_here(config)),
            str(error),
            f"files that can be read, and {PART / 1e6:,.0f} MB of room in {drafts}",
            "Free some space, or set TMPDIR to a folder that has it",
        ) from error
    if files:
        say(f"{config.name}: {files:,} files, {size / 1e6:,.1f} MB, are in {where}")
    else:
        say(f"{config.name} is in {where} already")
    return 0
