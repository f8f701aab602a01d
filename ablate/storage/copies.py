"""Copies of a ledger in storage, from which another machine goes on.

    ledger.sqlite    as the ledger was at one moment, all of it
    ledger.json      {"copy": how many there were, "owner": whose it is, "place": of which ledger,
                     "at": seconds since 1970}

One ledger at a time is copied there, by all who drive from it; it stays beside them, and the copy
is what is left if their machine goes. `copy` counts up, and each machine notes in
`OUT/storage.json` which one its ledger is ahead of: so a head that comes back finds that another
has gone on without it, and does not write over what that one found.

Trials that were under way start again where their checkpoints cannot be seen from the new machine,
with the same numbers at the end.
"""

from __future__ import annotations

import json
import logging
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from ablate.ledger.owner import STALE_SECONDS, Owner, host_name
from ablate.ledger.sqlite_files import back_up, damage, write_ahead
from ablate.storage.store import OPTION, Storage, StorageError
from trainables.errors import ConfigError
from trainables.machine.files import write_json

COPY_SECONDS = 60.0
LEDGER, WORD, NOTE = "ledger.sqlite", "ledger.json", "storage.json"
log = logging.getLogger("ablate.engine")


class Copies:
    """This driver's ledger in storage, for as long as the block lasts.

    ledger: the file. said: called with a line for the user. seconds: between two copies.
    """

    def __init__(
        self,
        storage: Storage,
        ledger: Path,
        owner: Owner,
        said: Callable[[str], None],
        seconds: float | None = None,
    ) -> None:
        self.storage, self.ledger, self.owner, self.said = storage, ledger, owner, said
        self.seconds = COPY_SECONDS if seconds is None else seconds
        self._place = f"{host_name()}:{ledger.resolve()}"
        self._count = self._noted()
        self._state: object = None
        self._fault = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="copies", daemon=True)

    def join(self) -> None:
        """Bring the ledger here if the storage knows more than this folder.

        Raises:
            ConfigError: another machine drives from this storage, it does not answer, or its copy
                is no ledger.
        """
        try:
            word = self._word()
            if word is None:
                return
            owner, ours = Owner.parse(word["owner"]), word["place"] == self._place
            if not ours and owner.alive(word["at"], STALE_SECONDS):
                raise ConfigError(
                    OPTION,
                    f"{self.storage.shown}, from which process {owner.pid} on "
                    f"{owner.host.partition('+')[0]} drives (heard of {_ago(word['at'])} ago)",
                    "a storage that nobody else drives from",
                    f"End that run, or wait: it counts as gone {STALE_SECONDS:.0f} s after its "
                    "last word",
                )
            if not self.ledger.exists() or (word["copy"] > self._count and not ours):
                self._fetch(word)
        except StorageError as error:
            raise ConfigError(
                OPTION, str(error), "a storage that answers", "See that it can be reached"
            ) from error

    def __enter__(self) -> Self:
        """Raises ConfigError: the storage takes nothing."""
        try:
            self._copy()
        except StorageError as error:
            raise ConfigError(
                OPTION, str(error), "a storage that can be written", "See to its rights"
            ) from error
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._try(last=True)

    def _go_on(self) -> None:
        while not self._ended.wait(self.seconds):
            self._try(last=False)

    def _try(self, *, last: bool) -> None:
        """A copy; a storage that is away for a while stops nothing, and is told of once."""
        try:
            self._copy()
            if self._fault:
                self._fault = ""
                self.said(f"storage: {self.storage.shown} has everything again")
        except (StorageError, OSError) as error:
            if not self._fault or last:
                self.said(f"warning: storage: {error}; {self.ledger} has everything")
            self._fault = str(error)

    def _copy(self) -> None:
        """Word and ledger, if the ledger has changed; the word alone else, as a sign of life.

        Raises:
            StorageError: it cannot be read or written, or another machine has gone on from it.
        """
        word = self._word()
        if word is not None and word["copy"] > self._count:
            if word["place"] != self._place:
                raise StorageError(
                    f"{self.storage.shown}: another machine has gone on from it ({word['place']}), "
                    "and its copies stay"
                )
            self._count = word["copy"]  # of another driver on this ledger
        with tempfile.TemporaryDirectory(dir=self.ledger.parent, prefix=".copy-") as folder:
            state = _state(self.ledger)
            if state != self._state:
                back_up(self.ledger, Path(folder) / LEDGER)
                self.storage.put(LEDGER, Path(folder) / LEDGER)
                self._count += 1
            told = {
                "copy": self._count,
                "owner": str(self.owner),
                "place": self._place,
                "at": time.time(),
            }
            write_json(Path(folder) / WORD, told)
            self.storage.put(WORD, Path(folder) / WORD)
            self._note()
            self._state = state

    def _fetch(self, word: dict[str, Any]) -> None:
        fresh = self.ledger.with_name(f".{LEDGER}.fetched")
        try:
            there = self.storage.get(LEDGER, fresh)
            fault = damage(fresh) if there else "it is not there"
            if fault is not None:
                raise ConfigError(
                    OPTION,
                    f"{self.storage.shown}/{LEDGER}, which is no whole ledger ({fault})",
                    "the copy that a driver left",
                    "Give another storage, or --out with a ledger of its own",
                )
            write_ahead(fresh)  # as no ledger that is there is made again (`schema.connect`)
            aside = _set_aside(self.ledger)
            fresh.replace(self.ledger)
        finally:
            fresh.unlink(missing_ok=True)
        self._count = word["copy"]
        self._note()
        self.said(f"storage: the ledger came from {self.storage.shown}, of {_ago(word['at'])} ago")
        if aside is not None:
            self.said(f"storage: the older one that was here is {aside}")

    def _word(self) -> dict[str, Any] | None:
        content = self.storage.read(WORD)
        try:
            word = None if content is None else json.loads(content)
            if word is not None:
                Owner.parse(word["owner"])
                word["copy"] + word["at"], word["place"]
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{self.storage.shown}/{WORD} is none of ours ({error})") from error
        return word

    def _noted(self) -> int:
        """The copy that the ledger here is ahead of; 0: of none in this storage."""
        try:
            noted = json.loads((self.ledger.parent / NOTE).read_text(encoding="utf-8"))
            return int(noted["copy"]) if noted["storage"] == self.storage.shown else 0
        except FileNotFoundError:
            return 0

    def _note(self) -> None:
        write_json(self.ledger.parent / NOTE, {"storage": self.storage.shown, "copy": self._count})


def _state(ledger: Path) -> tuple[tuple[int, int], ...]:
    """Changes whenever the ledger does: sizes and times of the file and of its journal."""
    found = [ledger, ledger.with_name(f"{ledger.name}-wal")]
    stats = [path.stat() for path in found if path.exists()]
    return tuple((stat.st_size, stat.st_mtime_ns) for stat in stats)


def _set_aside(ledger: Path) -> Path | None:
    """Move the ledger and its journal away; where to, if there was one."""
    if not ledger.exists():
        return None
    number = 1
    while (aside := ledger.with_name(f"{ledger.name}.aside-{number}")).exists():
        number += 1
    for suffix in ("-wal", "-shm", ""):
        part = ledger.with_name(ledger.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def _ago(at: float) -> str:
    return f"{max(0.0, time.time() - at):.0f} s"
