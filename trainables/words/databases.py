"""Inspect, check and copy SQLite files without disturbing writers.

Headers are read as `immutable`, so SQLite takes no lock and creates no file. Only SQLite may open
the files: a process that has a database open loses its locks when it closes the file by other means
(https://www.sqlite.org/howtocorrupt.html, 2.2), and another process may then delete the write-ahead
log.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

CHECK_SHARE = 0.02  # most of the time that checks of content take


class NoDatabase(ValueError):
    """The path is no SQLite database; the message says why."""


@dataclass(frozen=True)
class DatabaseHeader:
    """Pragmas and names of tables, without the content of the journal."""

    application_id: int
    user_version: int
    tables: frozenset[str]


class WatchedFile:
    """Notice what others do to the file of an open database: SQLite itself may not.

    SQLite goes on writing to a deleted file without an error, and reads from its cache what was cut
    off. Its checkpoints never make a file smaller that is not vacuumed.
    """

    def __init__(self, path: Path) -> None:
        """Note which file is at the path now, and its size."""
        stat = path.stat()
        self.path, self._identity, self._size = path, (stat.st_dev, stat.st_ino), stat.st_size
        self._checked_at, self._next_check = stat.st_mtime_ns, 0.0  # the latter is monotonic time

    def find_fault(self) -> str | None:
        """Return what was done to the file since it was opened; None if nothing was."""
        try:
            stat = self.path.stat()
        except OSError as error:
            return f"the file is gone ({error.strerror})"
        if (stat.st_dev, stat.st_ino) != self._identity:
            return "another file has taken its place"
        if stat.st_size < self._size:
            return f"the file was cut from {self._size} to {stat.st_size} bytes"
        self._size = stat.st_size
        return None

    def find_damage_if_changed(self) -> str | None:
        """Return the first fault in the content of a file that has changed since the last check.

        SQLite writes the file itself only at checkpoints, which are rare. The check of a large file
        is put off, so that all checks take at most `CHECK_SHARE` of the time.
        """
        changed_at, begin = self.path.stat().st_mtime_ns, time.monotonic()
        if changed_at == self._checked_at or begin < self._next_check:
            return None
        damage, end = find_damage(self.path), time.monotonic()
        self._checked_at, self._next_check = changed_at, end + (end - begin) / CHECK_SHARE
        return damage


@contextlib.contextmanager
def _open(path: Path, timeout: float, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=timeout)) as connection:
        yield connection


def read_header(path: Path) -> DatabaseHeader | None:
    """Read the pragmas and tables of a database; None if there is no file.

    Raises:
        NoDatabase: the file is something else.
        sqlite3.DatabaseError: the file is damaged, unreadable, or being written.
    """
    if not path.exists():
        return None
    if not path.is_file():
        raise NoDatabase(f"the path is {'a folder' if path.is_dir() else 'no plain file'}")
    try:
        with _open(path, 5, "ro&immutable=1") as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
            return DatabaseHeader(
                connection.execute("PRAGMA application_id").fetchone()[0],
                connection.execute("PRAGMA user_version").fetchone()[0],
                frozenset(str(name) for (name,) in names),
            )
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise NoDatabase("the file is no SQLite database") from error
        raise


def find_damage(path: Path) -> str | None:
    """Return the first fault that SQLite's check finds in a database; None if it is intact."""
    try:
        with _open(path, 5, "ro") as connection:
            verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        return None  # locked, or deleted: that is no damage
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if verdict == "ok" else verdict


def write_ahead(path: Path) -> None:
    """Enable the write-ahead log, so that readers and writers do not block each other."""
    with _open(path, 60, "rwc") as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def has_exclusive_access(path: Path, *, timeout: float = 5.0) -> bool:
    """Return whether no other process has a database open; if none has, merge the journal."""
    try:
        with _open(path, timeout) as connection:
            # Leaving the write-ahead log fails as "locked" while any other connection is open.
            (journal_mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute(f"PRAGMA journal_mode={journal_mode}")
    except sqlite3.DatabaseError as error:
        is_locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        return not is_locked  # a damaged file counts as not open
    return True


def fold_journal(path: Path) -> None:
    """Merge the journal into the file, so that the file alone is the database."""
    # an OperationalError means that another process uses it and merges the journal later
    with contextlib.suppress(sqlite3.OperationalError), _open(path, 5) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def copy_database(path: Path, to: Path) -> None:
    """Copy a database that others may be writing, as it is at one moment, into one file.

    SQLite's backup runs in one step: in several steps, each write of others would restart it.
    """
    try:
        with _open(path, 60, "ro") as source, _open(to, 5, "rwc") as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        raise OSError(f"{path} cannot be copied ({error})") from error
