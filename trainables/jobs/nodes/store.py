"""What a node wants of a storage that outlives it: files by name, whole or not at all.

Names have `/` for folders. Whoever may write there has written them: they lead nowhere but below
the folder that they are fetched into (`placed`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from trainables.errors import ConfigError
from trainables.machine.files import inside
from trainables.machine.processes import host_name

LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")
DRAFT = ".tmp"  # ends the name of a file that is being written


class Listed(NamedTuple):
    """size: bytes. at: seconds since 1970."""

    size: int
    at: float


class Store(Protocol):
    """As `ablate.storage.store.Storage`. Its errors are OSErrors: the machine's, not a trial's."""

    def listed(self, folder: str) -> dict[str, Listed]: ...
    def put(self, name: str, path: Path) -> None: ...
    def get(self, name: str, path: Path) -> bool: ...
    def delete(self, name: str) -> None: ...


class Patient:
    """A store that is asked again for `seconds` while it is away: each call as long as that."""

    def __init__(self, store: Store, seconds: float) -> None:
        self.store, self.seconds = store, seconds

    def listed(self, folder: str) -> dict[str, Listed]:
        return self._asked(lambda: self.store.listed(folder))

    def put(self, name: str, path: Path) -> None:
        self._asked(lambda: self.store.put(name, path))

    def get(self, name: str, path: Path) -> bool:
        return self._asked(lambda: self.store.get(name, path))

    def delete(self, name: str) -> None:
        self._asked(lambda: self.store.delete(name))

    def _asked(self, do: Callable[[], Answer]) -> Answer:
        end = time.monotonic() + self.seconds
        waits = False
        while True:
            try:
                return do()
            except OSError as error:
                if time.monotonic() >= end:
                    raise
                if not waits:
                    LOG.warning("%s; it is asked again for %.0f s", error, self.seconds)
                waits = True
                time.sleep(min(2.0, self.seconds / 10))


def opened(kind: str, where: str) -> Store:
    """A storage of the kind `module:class`.

    Raises:
        OSError: this node cannot use it: credentials or a variable are missing here.
    """
    module, _, name = kind.partition(":")
    try:
        store: Store = getattr(import_module(module), name)(where)
    except ConfigError as error:
        raise OSError(f"node {here()}: {error}") from None
    return store


def here() -> str:
    """This machine, as messages name it."""
    return host_name().partition("+")[0]


def placed(folder: Path, name: str) -> Path:
    """The file of that name below `folder`.

    Raises:
        ConfigError: the name would lead out of it.
    """
    path = folder
    for part in name.split("/"):
        path = inside(path, part)
    return path
