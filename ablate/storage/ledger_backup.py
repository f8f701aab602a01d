"""Copy the ledger to storage, so that another machine can continue a sweep.

    ledger.sqlite    in storage: a consistent copy of the ledger
    ledger.json      in storage, the lease: {"ledger": id, "copy": number of the copy, "owner":
                     driver, "place": its machine and path, "at": seconds since 1970, "over": ended}
    storage.json     beside the local ledger: {"ledger": id, "copies": {storage: number of the copy
                     on which the local ledger builds}}

A ledger gets its id at the first copy and keeps it on all machines. A storage with another id is
refused. `storage.json` is written before the first copy, so a ledger without it was never stored.

`copy` counts up, and `storage.json` says on which copy the local ledger builds. A machine that
returns after another one has continued sees a higher number in storage, and does not overwrite it.
Unfinished trials resume from their checkpoints in storage (`ablate/storage/checkpoints.py`).
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

from ablate.ledger.owner import STALE_SECONDS, Owner
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
from trainables.machine.processes import host_name

COPY_SECONDS = 60.0
LEDGER, LEASE, NOTE = "ledger.sqlite", "ledger.json", "storage.json"

log = logging.getLogger("ablate.engine")


@dataclass(frozen=True)
class DriverLease:
    """Content of `ledger.json`. over: the driver has ended, and no other one was alive."""

    ledger: str
    copy: int
    owner: str
    place: str
    at: float
    over: bool


@dataclass(frozen=True)
class BackupState:
    """Content of `storage.json`. ledger: empty if never stored. copies: by `Storage.shown`."""

    ledger: str = ""
    copies: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file; return an empty state if there is none, or if its content is invalid.

        Raises:
            OSError: the file exists and cannot be read.
        """
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except FileNotFoundError:
            return cls()
        except ValueError as error:
            log.info("%s is ignored: %r", path, error)  # as never stored: nothing is overwritten
            return cls()

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))


class LedgerBackup:
    """Copy this driver's ledger to storage for as long as the block lasts.

    Args:
        ledger: the file.
        tell: receives lines for the user.
        others: returns the other live drivers of the ledger.
        seconds: time between two copies.
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
        """Download the stored ledger if it is newer than the local one.

        Raises:
            ConfigError: another machine is running from this storage, the storage does not answer,
                its copy is damaged or of another ledger, or the local ledger is in use.
            LedgerError: no local file can be written.
        """
        with self._translate_errors("check its address and access rights"):
            lease = self._read_lease()
            self._note = BackupState.read(
                self._note_path
            )  # after the lease, which is written later
            if lease is None:
                return
            exists, is_ours = self.ledger.exists(), lease.place == self._place
            is_stored = self.storage.shown in self._note.copies or is_ours
            if exists and (lease.ledger != self._note.ledger or not is_stored):
                raise ConfigError(
                    OPTION,
                    f"{self.storage.shown} has the ledger of {lease.place}, and {self.ledger} was "
                    "never stored there. Give another --storage, or another --out to continue from "
                    "the stored ledger.",
                )
            # by the storage's clock, because the clocks of two machines can differ by minutes
            age, owner = self.storage.get_age(LEASE), Owner.parse(lease.owner)
            is_alive = not lease.over and owner.is_alive(time.time() - age, STALE_SECONDS)
            if not is_ours and is_alive:
                raise ConfigError(
                    OPTION,
                    f"{_name(owner)} is running from {self.storage.shown} (last seen {age:.0f} s "
                    f"ago). Stop that run, or wait for {STALE_SECONDS:.0f} s of silence.",
                )
            if not exists or (lease.copy > self._count and not is_ours):
                self._fetch_ledger(lease, age)

    def __enter__(self) -> Self:
        """Store a first copy, and start the thread that stores the next ones.

        Raises:
            ConfigError: the upload failed.
            LedgerError: the local disk is full.
        """
        with self._translate_errors("check its access rights, or give another storage"):
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
        """Store a copy; report a failure once, and continue without it."""
        try:
            self._upload_if_changed(over=is_last and not self.others())
            if self._fault:
                self._fault = ""
                self.tell(f"storage: {self.storage.shown} is up to date again")
        except OSError as error:
            if not self._fault or is_last:
                self.tell(f"warning: storage: {error}; {self.ledger} is complete")
            self._fault = str(error)

    def _upload_if_changed(self, *, over: bool = False) -> None:
        """Upload the ledger if it has changed, and renew the lease.

        Raises:
            StorageError: reading or writing failed, or another machine has continued from there.
            OSError: no local copy can be made.
        """
        lease, ledger_id, count = self._read_lease(), self._note.ledger, self._count
        if lease is not None and lease.place == self._place:
            ledger_id, count = (
                lease.ledger,
                max(count, lease.copy),
            )  # of another driver of this ledger
        elif lease is not None and (lease.ledger != ledger_id or lease.copy > count):
            raise StorageError(
                f"{self.storage.shown}: another machine ({lease.place}) has continued from it, "
                "so nothing is overwritten"
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
            lease = DriverLease(
                self._note.ledger, count, str(self.owner), self._place, time.time(), over
            )
            write_json(Path(folder) / LEASE, asdict(lease))
            self.storage.upload(LEASE, Path(folder) / LEASE)
            self._write_note(lease.ledger, count)
            self._copied = state

    def _fetch_ledger(self, lease: DriverLease, age: float) -> None:
        """Replace the local ledger by the stored one, and keep it under another name."""
        self._check_idle()
        download, aside = self.ledger.with_name(f".{LEDGER}.{os.getpid()}"), None
        fault = (
            find_fault(download) if self.storage.download(LEDGER, download) else "it does not exist"
        )
        if fault is not None:
            download.unlink(missing_ok=True)
            raise ConfigError(
                OPTION,
                f"{self.storage.shown}/{LEDGER} is not a complete ledger ({fault}). Give another "
                "storage, or an --out with its own ledger.",
            )
        write_ahead(download)  # which `schema.connect` expects of an existing ledger
        self._check_idle()  # no other process may have opened it meanwhile
        if self.ledger.exists():
            numbered = (self.ledger.with_name(f"{LEDGER}.aside-{n}") for n in itertools.count(1))
            aside = next(path for path in numbered if not path.exists())
            for suffix in ("-wal", "-shm", ""):
                part = self.ledger.with_name(LEDGER + suffix)
                if part.exists():
                    part.rename(aside.with_name(aside.name + suffix))
        # In this order: after a kill in between, the next run finds no ledger and downloads it.
        self._note = BackupState(lease.ledger, {self.storage.shown: lease.copy})
        self._note.write(self._note_path)
        download.replace(self.ledger)
        self.tell(
            f"storage: the ledger was downloaded from {self.storage.shown}; it is {age:.0f} s old"
        )
        if aside is not None:
            self.tell(f"storage: the older local ledger is now {aside}")

    def _check_idle(self) -> None:
        """Check that no process has the local ledger open.

        Raises:
            ConfigError: a driver or another process has.
        """
        users = ", ".join(map(_name, self.others()))
        if not users and self.ledger.exists() and not has_exclusive_access(self.ledger):
            users = "another process"
        if users:
            raise ConfigError(
                OPTION,
                f"{self.storage.shown} is newer than {self.ledger}, which {users} is using. Wait "
                "for its end, or stop it (`ablate stop`).",
            )

    def _read_lease(self) -> DriverLease | None:
        content = self.storage.read_bytes(LEASE)
        if content is None:
            return None
        try:
            lease = TypeAdapter(DriverLease).validate_json(content)
            Owner.parse(lease.owner)
        except ValueError as error:
            raise StorageError(f"{self.storage.shown}/{LEASE} is not a file of ablate") from error
        return lease

    @property
    def _count(self) -> int:
        """The number of the copy on which the local ledger builds; 0 if it was never stored."""
        return self._note.copies.get(self.storage.shown, 0)

    def _write_note(self, ledger_id: str, count: int) -> None:
        # read again, because another driver may store copies elsewhere
        recorded = BackupState.read(self._note_path)
        self._note = BackupState(ledger_id, {**recorded.copies, self.storage.shown: count})
        if self._note != recorded:
            self._note.write(self._note_path)

    @contextmanager
    def _translate_errors(self, remedy: str) -> Iterator[None]:
        """Turn errors of storage and disk into one sentence with a remedy."""
        try:
            yield
        except StorageError as error:
            raise ConfigError(OPTION, f"{error}; {remedy}") from error
        except OSError as error:
            raise LedgerError(
                f"{self.ledger.parent}: the ledger cannot be copied ({error}). Free space there "
                f"and in {tempfile.gettempdir()}, and start again; all records are kept."
            ) from error


def _name(owner: Owner) -> str:
    return f"process {owner.pid} on {owner.host.partition('+')[0]}"


def find_fault(path: Path) -> str | None:
    """Return why a file is not a complete ledger that this version reads; None if it is one.

    SQLite accepts an empty file and databases of other programs, so these are checked too.
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
