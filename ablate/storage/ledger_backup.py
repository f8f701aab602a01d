"""Copies of a ledger in storage, from which another machine goes on.

    ledger.sqlite    the whole ledger as it was at one moment
    ledger.json      {"ledger": which, "copy": how many there were, "owner": who drives,
                     "place": from where, "at": seconds since 1970, "over": ended}
    storage.json     beside the ledger: {"ledger": which, "copies": {storage: the copy it is ahead
                     of}}

`ledger` is made up when a ledger is copied for the first time and stays with it on all machines: a
storage that has another one is none to go on from. The note beside the ledger is written before the
first copy is, so that a ledger without one was never stored.

One ledger at a time is copied there, by all who drive from it; it stays beside them, and the copy
is what is left if their machine goes. `copy` counts up, and each machine notes in
`OUT/storage.json` which one its ledger is ahead of: so a head that comes back finds that another
has gone on without it, and does not write over what that one found. A ledger that was never stored
there is neither replaced nor copied over another one.

Trials under way go on from their checkpoints in storage (`ablate/storage/checkpoints.py`).
"""

from __future__ import annotations

import itertools
import logging
import os
import sqlite3
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from ablate.ledger.owner import STALE_SECONDS, Owner, host_name
from ablate.ledger.schema import APPLICATION_ID, VERSION, LedgerError
from ablate.ledger.sqlite_files import (
    NoDatabase,
    copy_database,
    find_damage,
    has_exclusive_access,
    read_header,
    write_ahead,
)
from ablate.storage.store import OPTION, Storage, StorageError
from trainables.errors import ConfigError
from trainables.machine.files import write_json

COPY_SECONDS = 60.0
LEDGER, WORD, NOTE = "ledger.sqlite", "ledger.json", "storage.json"

log = logging.getLogger("ablate.engine")


@dataclass(frozen=True)
class DriverLease:
    """`ledger.json`. over: the driver has ended, and knew of no other."""

    ledger: str
    copy: int
    owner: str
    place: str
    at: float
    over: bool


@dataclass(frozen=True)
class BackupState:
    """`storage.json`. ledger: empty where it was never stored. copies: by `Storage.shown`."""

    ledger: str = ""
    copies: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises OSError: it is there, and cannot be read."""
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except FileNotFoundError:
            return cls()
        except ValueError as error:
            log.info("%s notes no copies: %r", path, error)  # then nothing is written over
            return cls()

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))


class LedgerBackup:
    """Copy this driver's ledger to storage for as long as the block lasts.

    Args:
        ledger: the file.
        tell: called with a line for the user.
        others: returns the other drivers of the ledger that are alive.
        seconds: between two copies.
    """

    def __init__(
        self,
        storage: Storage,
        ledger: Path,
        owner: Owner,
        tell: Callable[[str], None],
        *,
        others: Callable[[], Sequence[Owner]],
        seconds: float | None = None,
    ) -> None:
        self.storage, self.ledger, self.owner, self.tell = storage, ledger, owner, tell
        self.others, self.seconds = others, seconds or COPY_SECONDS
        self._place = f"{host_name()}:{ledger.resolve()}"
        self._note_path, self._note = ledger.parent / NOTE, BackupState()
        self._copied: object = None  # the ledger's state at the last copy
        self._fault = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._copy_regularly, name="copies", daemon=True)

    def restore_if_newer(self) -> None:
        """Bring the ledger here if the storage knows more than this folder.

        Raises:
            ConfigError: another machine drives from this storage, it does not answer, its copy is
                no ledger or of another one, or somebody is at work on the one here.
            LedgerError: no file can be written here.
        """
        with self._translate_errors("see that it can be reached"):
            word = self._read_word()
            self._note = BackupState.read(self._note_path)  # later: it is written earlier
            if word is None:
                return
            exists, is_ours = self.ledger.exists(), word.place == self._place
            is_stored = self.storage.shown in self._note.copies or is_ours
            if exists and (word.ledger != self._note.ledger or not is_stored):
                raise ConfigError(
                    OPTION,
                    f"{self.storage.shown} has the ledger of {word.place}, and {self.ledger} was "
                    "never stored there; give another --storage, or another --out to go on from "
                    "the stored one",
                )
            # by the storage's clock: the driver's own may be minutes from ours
            age, owner = self.storage.get_age(WORD), Owner.parse(word.owner)
            is_alive = not word.over and owner.is_alive(time.time() - age, STALE_SECONDS)
            if not is_ours and is_alive:
                raise ConfigError(
                    OPTION,
                    f"from {self.storage.shown} {_name(owner)} drives (heard of {age:.0f} s ago); "
                    f"end that run, or wait: it counts as gone {STALE_SECONDS:.0f} s after its "
                    "last word",
                )
            if not exists or (word.copy > self._count and not is_ours):
                self._fetch_ledger(word, age)

    def __enter__(self) -> Self:
        """Raises ConfigError: the storage takes nothing. LedgerError: no room for a copy here."""
        with self._translate_errors("see to its rights, or give another storage"):
            self._upload_if_changed()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._try_upload(is_last=True)

    def _copy_regularly(self) -> None:
        while not self._ended.wait(self.seconds):
            self._try_upload(is_last=False)

    def _try_upload(self, *, is_last: bool) -> None:
        """Copy; a storage that is away for a while stops nothing, and is told of once."""
        try:
            self._upload_if_changed(over=is_last and not self.others())
            if self._fault:
                self._fault = ""
                self.tell(f"storage: {self.storage.shown} has everything again")
        except OSError as error:
            if not self._fault or is_last:
                self.tell(f"warning: storage: {error}; {self.ledger} has everything")
            self._fault = str(error)

    def _upload_if_changed(self, *, over: bool = False) -> None:
        """Store word and ledger, if the ledger has changed; else the word, as a sign of life.

        Raises:
            StorageError: it cannot be read or written, or another machine has gone on from it.
            OSError: no copy can be made here.
        """
        word, ledger_id, count = self._read_word(), self._note.ledger, self._count
        if word is not None and word.place == self._place:
            ledger_id, count = word.ledger, max(count, word.copy)  # another driver's on this ledger
        elif word is not None and (word.ledger != ledger_id or word.copy > count):
            raise StorageError(
                f"{self.storage.shown}: another machine has gone on from it ({word.place}), "
                "and its copies stay"
            )
        self._write_note(ledger_id or uuid.uuid4().hex, count)
        with tempfile.TemporaryDirectory() as folder:
            # the file and its journal change in size or time whenever the ledger does
            files = [self.ledger, self.ledger.with_name(f"{LEDGER}-wal")]
            stats = [path.stat() for path in files if path.exists()]
            state = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
            if state != self._copied:
                copy_database(self.ledger, Path(folder) / LEDGER)
                self.storage.upload(LEDGER, Path(folder) / LEDGER)
                count += 1
            word = DriverLease(
                self._note.ledger, count, str(self.owner), self._place, time.time(), over
            )
            write_json(Path(folder) / WORD, asdict(word))
            self.storage.upload(WORD, Path(folder) / WORD)
            self._write_note(word.ledger, count)
            self._copied = state

    def _fetch_ledger(self, word: DriverLease, age: float) -> None:
        """Put the stored ledger in place of the one here, which is set aside."""
        self._check_idle()
        fresh, aside = self.ledger.with_name(f".{LEDGER}.{os.getpid()}"), None
        fault = find_fault(fresh) if self.storage.download(LEDGER, fresh) else "it is not there"
        if fault is not None:
            fresh.unlink(missing_ok=True)
            raise ConfigError(
                OPTION,
                f"{self.storage.shown}/{LEDGER} is no whole ledger ({fault}); give another "
                "storage, or --out with a ledger of its own",
            )
        write_ahead(fresh)  # as no ledger that is there is made again (`schema.connect`)
        self._check_idle()  # nobody has begun meanwhile
        if self.ledger.exists():
            numbered = (self.ledger.with_name(f"{LEDGER}.aside-{n}") for n in itertools.count(1))
            aside = next(path for path in numbered if not path.exists())
            for suffix in ("-wal", "-shm", ""):
                part = self.ledger.with_name(LEDGER + suffix)
                if part.exists():
                    part.rename(aside.with_name(aside.name + suffix))
        # In this order: whoever is killed in between finds no ledger here, and fetches it.
        self._note = BackupState(word.ledger, {self.storage.shown: word.copy})
        self._note.write(self._note_path)
        fresh.replace(self.ledger)
        self.tell(f"storage: the ledger came from {self.storage.shown}, of {age:.0f} s ago")
        if aside is not None:
            self.tell(f"storage: the older one that was here is {aside}")

    def _check_idle(self) -> None:
        """Raises ConfigError: a driver, a `--cell`, or whoever else has the ledger open."""
        at_work = ", ".join(map(_name, self.others()))
        if not at_work and self.ledger.exists() and not has_exclusive_access(self.ledger):
            at_work = "another process"
        if at_work:
            raise ConfigError(
                OPTION,
                f"{self.storage.shown} knows more than {self.ledger}, and {at_work} is at work on "
                "that one; wait for the end of that, or end it (`ablate stop`)",
            )

    def _read_word(self) -> DriverLease | None:
        content = self.storage.read_bytes(WORD)
        if content is None:
            return None
        try:
            word = TypeAdapter(DriverLease).validate_json(content)
            Owner.parse(word.owner)
        except ValueError as error:
            raise StorageError(f"{self.storage.shown}/{WORD} is none of ours") from error
        return word

    @property
    def _count(self) -> int:
        """The copy that the ledger here is ahead of; 0: of none in this storage."""
        return self._note.copies.get(self.storage.shown, 0)

    def _write_note(self, ledger_id: str, count: int) -> None:
        known = BackupState.read(
            self._note_path
        )  # anew: another driver may copy to another storage
        self._note = BackupState(ledger_id, {**known.copies, self.storage.shown: count})
        if self._note != known:
            self._note.write(self._note_path)

    @contextmanager
    def _translate_errors(self, remedy: str) -> Iterator[None]:
        """Make one line of what storage or disk refuse."""
        try:
            yield
        except StorageError as error:
            raise ConfigError(OPTION, f"{error}; {remedy}") from error
        except OSError as error:
            raise LedgerError(
                f"{self.ledger.parent}: no copy of the ledger can be made ({error}); make room for "
                f"it here and in {tempfile.gettempdir()}, and start again: everything recorded is "
                "kept"
            ) from error


def _name(owner: Owner) -> str:
    return f"process {owner.pid} on {owner.host.partition('+')[0]}"


def find_fault(path: Path) -> str | None:
    """Say why a file is no whole ledger that this version reads; None: it is one.

    SQLite takes an empty file for a whole database, and any other program's for one too.
    """
    try:
        database = read_header(path)
    except (NoDatabase, sqlite3.DatabaseError) as error:
        return str(error)
    if database is None or not database.tables:
        return "an empty file"
    if database.application_id != APPLICATION_ID:
        return "a database of another program"
    if database.user_version > VERSION:
        return f"of version {database.user_version}; this ablate reads {VERSION} at most"
    return find_damage(path)
