"""Keep files in storage through pyarrow (a folder, `s3://`, `gs://`, `hdfs://`), and the ledger.

    s3://bucket/folder?region=eu-west-1
    s3://bucket/folder?scheme=http&endpoint_override=127.0.0.1:9000    another S3 server

Credentials are found as by the provider's own tools (`AWS_ACCESS_KEY_ID`, a profile, a role of the
machine, `GOOGLE_APPLICATION_CREDENTIALS`) and must allow reading, writing and deleting. A file is
uploaded under a draft name and then moved, so it is never incomplete (in S3 and GCS the server
copies it, at most 5 GB in S3, and deletes the draft).

Another machine continues a sweep from the copy of the ledger:

    ledger.sqlite    in storage: a consistent copy of the ledger
    ledger.json      in storage, the lease: {"ledger": id, "copy": number of the copy, "owner":
                     driver, "place": its machine and path, "at": seconds since 1970, "over": ended}
    storage.json     beside the local ledger: {"ledger": id, "copies": {storage: number of the copy
                     on which the local ledger builds}}

A ledger gets its id at the first copy and keeps it on all machines. A storage with another id is
refused. `storage.json` is written before the first copy, so a ledger without it was never stored.

`copy` counts up, and `storage.json` says on which copy the local ledger builds. A machine that
returns after another one has continued sees a higher number in storage, and does not overwrite it.
Unfinished trials resume from their checkpoints in storage (`ablate/plugins/checkpoints.py`).
"""

import contextlib
import itertools
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from ablate.ledger.ledger import STALE_SECONDS, Owner
from ablate.ledger.records import Records
from ablate.ledger.schema import APPLICATION_ID, RESTORE, VERSION, LedgerDamage, LedgerError
from ablate.storage import OPTION, expand_variable
from trainables.machine.processes import host_name
from trainables.words.databases import (
    NoDatabase,
    copy_database,
    find_damage,
    has_exclusive_access,
    read_header,
    write_ahead,
)
from trainables.words.errors import ConfigError
from trainables.words.files import write_json
from trainables.words.secrets import redact_text, redact_uri

PIECE = 1 << 20  # bytes
DRAFT = ".tmp"  # end of the name of an incomplete upload
COPY_SECONDS = 60.0
LEDGER, LEASE, NOTE = "ledger.sqlite", "ledger.json", "storage.json"

log = logging.getLogger("ablate.engine")


class StorageError(OSError):
    """A failure of the storage, with a message that contains no secret."""


class Storage:
    """Read and write files by name (with `/` for folders) below one URI.

    Every method that accesses the storage raises StorageError on failure.

    Args:
        address: a URI, a path, or `env:NAME` for the value of an environment variable.

    Attributes:
        uri: the URI or path.
        files: pyarrow's file system.
        root: the path in it.

    Raises:
        ConfigError: the variable does not exist, or pyarrow does not support the URI.
    """

    def __init__(self, address: str) -> None:
        """Find pyarrow's file system and the path in it for a URI, a path or `env:NAME`."""
        import pyarrow.fs

        self.uri = expand_variable(address, OPTION)
        self.files: Any
        try:
            self.files, root = pyarrow.fs.FileSystem.from_uri(self.address)
        except (ValueError, OSError, TypeError, NotImplementedError) as error:
            raise ConfigError(
                OPTION,
                f"pyarrow does not accept {self} ({self._redact_error(error)})",
                "Use a path or an s3://, gs:// or hdfs:// URI",
            ) from None
        self.root = root.rstrip("/")

    def __str__(self) -> str:
        return redact_uri(self.uri)

    @property
    def address(self) -> str:
        """The URI or absolute path that pyarrow takes."""
        return self.uri if "://" in self.uri else str(Path(self.uri).expanduser().resolve())

    def upload(self, name: str, path: Path) -> None:
        """Upload a local file under a draft name, then rename it, so `name` is never incomplete."""
        target = f"{self.root}/{name}"
        draft = f"{target}.{uuid.uuid4().hex}{DRAFT}"
        with self._translate_errors(f"write {name}"):
            self.files.create_dir(target.rpartition("/")[0], recursive=True)
            try:
                with path.open("rb") as source, self.files.open_output_stream(draft) as stream:
                    shutil.copyfileobj(source, stream, PIECE)
                self.files.move(draft, target)
            except BaseException:  # closing the stream has saved a draft: delete it
                with contextlib.suppress(OSError):
                    self.files.delete_file(draft)
                raise

    def download(self, name: str, path: Path) -> bool:
        """Download a file to `path` completely or not at all; return False if it does not exist."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with self._translate_errors(f"read {name}"):
                if self._find_info(name) is None:
                    return False
                source = f"{self.root}/{name}"
                with self.files.open_input_stream(source) as stream, draft.open("wb") as target:
                    shutil.copyfileobj(stream, target, PIECE)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return True

    def read_bytes(self, name: str) -> bytes | None:
        """Return the content of a small file, or None if it does not exist."""
        with self._translate_errors(f"read {name}"):
            if self._find_info(name) is None:
                return None
            with self.files.open_input_stream(f"{self.root}/{name}") as stream:
                return bytes(stream.read())

    def list_folder(self, folder: str = "") -> list[str]:
        """Return the names of the files and folders directly in a folder."""
        import pyarrow.fs

        path = f"{self.root}/{folder}".rstrip("/")
        selector = pyarrow.fs.FileSelector(path, allow_not_found=True)
        with self._translate_errors(f"list {folder}"):
            # pyarrow raises FileNotFoundError if a folder is made or deleted meanwhile: try again
            for _ in range(4):
                with contextlib.suppress(FileNotFoundError):
                    return [info.base_name for info in self.files.get_file_info(selector)]
            return [info.base_name for info in self.files.get_file_info(selector)]

    def get_age(self, name: str) -> float:
        """Return the age of a file in seconds by the storage's clock; 0 if it does not exist.

        Clocks of machines can differ by minutes, so the time now is that of a new probe file.
        """
        probe = f"clock.{uuid.uuid4().hex}{DRAFT}"
        with self._translate_errors(f"read the age of {name}"):
            with self.files.open_output_stream(f"{self.root}/{probe}") as stream:
                stream.write(b"?")
            now, then = self._find_info(probe), self._find_info(name)
            self.files.delete_file(f"{self.root}/{probe}")
        if not (now and then and now.mtime_ns and then.mtime_ns):  # some storages tell no time
            return 0.0
        return max(0.0, float(now.mtime_ns - then.mtime_ns) / 1e9)

    def put_folder(self, name: str, folder: Path) -> None:
        """Upload a local folder with its subfolders to the folder `name` in storage."""
        import pyarrow.fs

        with self._translate_errors(f"write {name}"):
            self.files.create_dir(f"{self.root}/{name}", recursive=True)
            pyarrow.fs.copy_files(
                str(folder),
                f"{self.root}/{name}",
                source_filesystem=pyarrow.fs.LocalFileSystem(),
                destination_filesystem=self.files,
            )

    def delete_folder(self, name: str) -> None:
        """Delete a folder with its content, if it exists."""
        with self._translate_errors(f"delete {name}"), contextlib.suppress(FileNotFoundError):
            self.files.delete_dir(f"{self.root}/{name}")

    def _find_info(self, name: str) -> Any | None:
        """Return pyarrow's description of a file, or None if it does not exist."""
        (info,) = self.files.get_file_info([f"{self.root}/{name}"])
        return None if info.type.name == "NotFound" else info

    @contextmanager
    def _translate_errors(self, action: str) -> Iterator[None]:
        """Turn an OSError into a StorageError without secrets, which names the failed `action`."""
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"{self}: ablate cannot {action} there ({self._redact_error(error)})"
            ) from None

    def _redact_error(self, error: Exception) -> str:
        return " ".join(redact_text(str(error), self.uri).split())[:300]


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
    """Content of `storage.json`. ledger: empty if never stored. copies: by `str(Storage)`."""

    ledger: str = ""
    copies: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read `storage.json`; return an empty state if it does not exist or is invalid."""
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except FileNotFoundError:
            return cls()
        except ValueError as error:  # then nothing counts as stored, and nothing is overwritten
            log.info("%s is ignored: %r", path, error)
            return cls()

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))


class LedgerBackup:
    """Copy this driver's ledger to storage for as long as the block lasts.

    Args:
        ledger: the file.
        print_line: receives lines for the user.
        list_other_drivers: returns the other live drivers of the ledger.
        seconds: time between two copies.
    """

    def __init__(
        self,
        storage: Storage,
        ledger: Path,
        owner: Owner,
        print_line: Callable[[str], None],
        *,
        list_other_drivers: Callable[[], Sequence[Owner]],
        seconds: float | None = None,
    ) -> None:
        """Prepare the thread that copies the ledger every `seconds`; nothing is read or written."""
        self.storage, self.ledger, self.owner, self.print_line = storage, ledger, owner, print_line
        self.list_other_drivers, self.seconds = list_other_drivers, seconds or COPY_SECONDS
        self._place = f"{host_name()}:{ledger.resolve()}"
        self._state_path, self._state = ledger.parent / NOTE, BackupState()
        self._copied_stats: object = None  # sizes and times of the ledger's files at the last copy
        self._fault = ""  # fault of the last upload, which was printed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._copy_regularly, name="copies", daemon=True)

    def restore_if_newer(self) -> None:
        """Download the stored ledger if it is newer than the local one.

        Raises:
            ConfigError: another machine is running from this storage, the storage does not answer,
                its copy is damaged or of another ledger, or the local ledger is in use.
            LedgerError: no local file can be written.
        """
        with self._translate_errors("Check the storage's address and access rights."):
            # read the lease before the state, because other drivers write it after the state
            lease = self._read_lease()  # which driver stored which copy
            self._state = BackupState.read(self._state_path)  # which copies this ledger knows
            if lease is None:
                return
            # refuse a local ledger that was never copied to this storage
            exists, is_ours = self.ledger.exists(), lease.place == self._place
            was_stored_here = str(self.storage) in self._state.copies or is_ours
            if exists and (lease.ledger != self._state.ledger or not was_stored_here):
                raise ConfigError(
                    OPTION,
                    f"{self.storage} has the ledger of {lease.place}, and {self.ledger} was never "
                    "copied to this storage",
                    "Give another --storage, or another --out to continue from the stored ledger",
                )
            # refuse a storage from which another machine is running
            age, owner = self.storage.get_age(LEASE), Owner.parse(lease.owner)
            is_alive = not lease.over and owner.is_alive(time.time() - age, STALE_SECONDS)
            if not is_ours and is_alive:
                raise ConfigError(
                    OPTION,
                    f"{owner.describe()} runs from {self.storage} (seen {age:.0f} s ago)",
                    f"Stop that run, or wait until it is silent for {STALE_SECONDS:.0f} s",
                )
            # download it if no local ledger exists, or another machine has stored a newer copy
            if not exists or (lease.copy > self._copy_number and not is_ours):
                self._fetch_ledger(lease, age)

    def __enter__(self) -> Self:
        """Upload a first copy of the ledger, and start the thread that uploads the next ones."""
        with self._translate_errors("Check the access rights, or give another --storage."):
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
        """Upload the ledger; on failure warn once and go on, since a later upload may succeed."""
        try:
            # the last driver of this ledger marks the lease as over
            self._upload_if_changed(over=is_last and not self.list_other_drivers())
            if self._fault:
                self._fault = ""
                self.print_line(f"storage: {self.storage} is up to date again")
        except LedgerDamage as error:  # it ends the run
            if not self._fault:
                text = f"{self.storage} keeps its copy of the ledger, which may replace this file"
                self.print_line(f"warning: storage: {text}. {error}")
            self._fault = str(error)
        except OSError as error:
            if not self._fault or is_last:
                text = f"{str(error).rstrip('.')}. The local ledger {self.ledger} is complete."
                self.print_line(f"warning: storage: {text}")
            self._fault = str(error)

    def _upload_if_changed(self, *, over: bool = False) -> None:
        """Upload the ledger if it has changed, and renew the lease that names its driver and copy.

        `over` notes in the lease that no driver of this ledger runs any more.
        """
        # check that no other machine has continued
        lease, ledger_id, copy_number = self._read_lease(), self._state.ledger, self._copy_number
        if lease is not None and lease.place == self._place:  # a driver of this ledger wrote it
            ledger_id, copy_number = lease.ledger, max(copy_number, lease.copy)
        elif lease is not None and (lease.ledger != ledger_id or lease.copy > copy_number):
            raise StorageError(
                f"{self.storage}: another machine ({lease.place}) has continued the sweep from this"
                " storage, so nothing is overwritten. End that run, or give another --storage."
            )
        self._write_state(ledger_id or uuid.uuid4().hex, copy_number)
        with tempfile.TemporaryDirectory() as folder:
            # copy the ledger if its file or journal has changed in size or time
            paths = [self.ledger, self.ledger.with_name(f"{LEDGER}-wal")]
            stats = [path.stat() for path in paths if path.exists()]
            new_stats = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
            if new_stats != self._copied_stats:
                with Records(self.ledger):  # refuses a file that was damaged or replaced meanwhile
                    copy_database(self.ledger, Path(folder) / LEDGER)
                if (fault := find_fault(Path(folder) / LEDGER)) is not None:
                    raise LedgerDamage(str(self.ledger), fault, RESTORE)
                self.storage.upload(LEDGER, Path(folder) / LEDGER)
                copy_number += 1
            # renew the lease
            lease = DriverLease(
                self._state.ledger, copy_number, str(self.owner), self._place, time.time(), over
            )
            write_json(Path(folder) / LEASE, asdict(lease))
            self.storage.upload(LEASE, Path(folder) / LEASE)
            self._write_state(lease.ledger, copy_number)
            self._copied_stats = new_stats

    def _fetch_ledger(self, lease: DriverLease, age: float) -> None:
        """Replace the local ledger by the stored one, and keep the local one as `….aside-<n>`.

        `age` is the age of the lease in seconds: at that time the stored ledger was up to date.
        """
        # download the stored ledger, and check it
        self._check_idle()
        download = self.ledger.with_name(f".{LEDGER}.{os.getpid()}")
        self.storage.download(LEDGER, download)
        if (fault := find_fault(download)) is not None:
            download.unlink(missing_ok=True)
            raise ConfigError(
                OPTION,
                f"{self.storage}/{LEDGER} is not a complete ledger ({fault})",
                "Give another --storage, or an --out folder that has a ledger of its own",
            )
        write_ahead(download)  # `schema.open_connection` expects a write-ahead log
        self._check_idle()  # another process may have opened the local ledger meanwhile
        # rename the local ledger and its journal
        if self.ledger.exists():
            numbered = (self.ledger.with_name(f"{LEDGER}.aside-{n}") for n in itertools.count(1))
            backup = next(path for path in numbered if not path.exists())
            for suffix in ("-wal", "-shm", ""):
                part = self.ledger.with_name(LEDGER + suffix)
                if part.exists():
                    part.rename(backup.with_name(backup.name + suffix))
            self.print_line(f"storage: the older local ledger was renamed to {backup}")
        # a kill before the last step leaves no ledger, so the next run downloads it
        self._state = BackupState(lease.ledger, {str(self.storage): lease.copy})
        self._state.write(self._state_path)
        download.replace(self.ledger)
        self.print_line(
            f"storage: the ledger was downloaded from {self.storage}; this copy is {age:.0f} s old"
        )

    def _check_idle(self) -> None:
        """Raise ConfigError if another process has the local ledger open."""
        users = ", ".join(map(Owner.describe, self.list_other_drivers()))
        if not users and self.ledger.exists() and not has_exclusive_access(self.ledger):
            users = "another process"
        if users:
            raise ConfigError(
                OPTION,
                f"the copy in {self.storage} is newer than {self.ledger}, which {users} uses",
                "Wait for that run, or stop it (`ablate stop`)",
            )

    def _read_lease(self) -> DriverLease | None:
        """Read from storage which driver has stored which copy; None if no ledger is there."""
        content = self.storage.read_bytes(LEASE)
        if content is None:
            return None
        try:
            lease = TypeAdapter(DriverLease).validate_json(content)
            Owner.parse(lease.owner)
        except ValueError as error:
            raise StorageError(f"{self.storage}/{LEASE} was not written by ablate") from error
        return lease

    @property
    def _copy_number(self) -> int:
        """The number of the copy on which the local ledger builds; 0 if it was never stored."""
        return self._state.copies.get(str(self.storage), 0)

    def _write_state(self, ledger_id: str, copy_number: int) -> None:
        # read again, because another driver may store copies elsewhere
        copies = BackupState.read(self._state_path).copies
        self._state = BackupState(ledger_id, {**copies, str(self.storage): copy_number})
        self._state.write(self._state_path)

    @contextmanager
    def _translate_errors(self, remedy: str) -> Iterator[None]:
        """Raise ConfigError with a remedy if the storage fails, LedgerError if the disk does."""
        try:
            yield
        except StorageError as error:
            raise ConfigError(OPTION, str(error).rstrip("."), remedy) from error
        except OSError as error:
            raise LedgerError(
                f"{self.ledger.parent}: the ledger cannot be copied ({error}). Free space there "
                f"and in {tempfile.gettempdir()}, and start again; all records are kept."
            ) from error


def find_fault(path: Path) -> str | None:
    """Return why a file is not a complete ledger that this version reads; None if it is one."""
    try:
        database = read_header(path)
    except (NoDatabase, sqlite3.DatabaseError) as error:
        return str(error)
    if database is None:
        return "it does not exist"
    if database.application_id != APPLICATION_ID:  # another database, or an empty file
        return "it is no ledger"
    if database.user_version > VERSION:
        return f"it has version {database.user_version}; this ablate reads versions up to {VERSION}"
    return find_damage(path)
