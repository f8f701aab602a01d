"""A data set on a node that shares nothing: found there, or fetched there once, and checked.

Each node looks by itself, in `data.root` or `$ABLATE_DATA`. What it lacks, or has otherwise than
the driver, comes from storage, if `ablate data push` has put it there, into the node's cache; the
fingerprint, of names and contents, says whether it is the driver's.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from trainables.config.images import DataConfig
from trainables.data.dataset import data_config, fingerprint
from trainables.data.files.places import stand_in
from trainables.errors import ConfigError
from trainables.jobs.nodes.parcels import pull
from trainables.jobs.nodes.store import Store, here

LOG = logging.getLogger(__name__)
FOLDER = "data-sets"
SHOWN = 80  # characters of what was found

_checked: set[tuple[str, str]] = set()


class OtherData(OSError):
    """This node has not the driver's data, and cannot get it: the machine's fault."""


def provide(data: Mapping[str, Any], wanted: str, cache: Path, store: Store) -> None:
    """That what a trial reads as `data` is, on this node, the data set of fingerprint `wanted`.

    Raises:
        OtherData: it is not, and the storage does not have it.
        OSError: the storage does not answer, or there is no room here.
    """
    config = data_config(data)
    if (config.images, wanted) in _checked:
        return
    why = _differs(config, wanted, cache)
    if why is not None:
        folder = cache / FOLDER / f"{config.name}-{wanted[:16]}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            if not folder.exists() and not _fetched(store, config.name, wanted, folder):
                raise _nowhere(config, why)
            stand_in(config, _root(config, folder))
            if (fault := _differs(config, wanted, cache, fetched=True)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                stand_in(config, None)
                raise _nowhere(config, f"{fault} in what came from storage")
        LOG.info("%s is not here (%s): it is read from %s", config.name, why, folder)
    _checked.add((config.images, wanted))


def _differs(config: DataConfig, wanted: str, cache: Path, *, fetched: bool = False) -> str | None:
    """How what is here is not the data set that is wanted; None: it is.

    Raises:
        OSError: what was fetched cannot be read just now, which is no reason to remove it.
    """
    try:
        found = fingerprint(config, cache)
    except ConfigError as error:
        cause = error.__cause__
        if fetched and isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
            raise cause from error
        return error.found
    return None if found == wanted else f"another one, of fingerprint {found[:16]}"


def _fetched(store: Store, name: str, wanted: str, folder: Path) -> bool:
    """Whole or not at all. In the block of the folder's lock, so that what is left is nobody's."""
    draft = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        if not pull(store, name, wanted, draft):
            return False
        draft.replace(folder)
    except ConfigError as error:
        raise OSError(f"node {here()}: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True


def _root(config: DataConfig, folder: Path) -> Path:
    """Where its reader is to look: of a table the file."""
    table = None if config.root is None else folder / Path(config.root).name
    return table if table is not None and table.is_file() else folder


def _nowhere(config: DataConfig, why: str) -> OtherData:
    """Short enough for the line in which a driver tells why the machine ended a trial."""
    return OtherData(
        f"node {here()}: found {why[:SHOWN]} as data set {config.name}; expected the driver's. "
        f"Send it once with `ablate data push {config.name} --storage URI`, or put it in a folder "
        "of $ABLATE_DATA there"
    )
