"""What a SQLite file is, found out before anything opens, locks or writes it.

The head of the first page (https://www.sqlite.org/fileformat.html) tells a database from any
other file, and whose it is; it is read as plain bytes, since even a look through SQLite locks the
file and may leave others beside it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_MAGIC = b"SQLite format 3\0"
_HEAD = 105  # bytes: the database's header, then that of its first page
_LEAF = 13  # a page that holds a table's rows itself


class NoDatabase(ValueError):
    """The file is no SQLite database; the text says what it is."""


@dataclass(frozen=True)
class Head:
    """application_id, user_version: the pragmas of these names. tables: whether it has any."""

    application_id: int
    user_version: int
    tables: bool


def head(path: Path) -> Head | None:
    """The head of a database; None where the file is missing or empty, as a fresh one is.

    Raises:
        NoDatabase: anything else.
        OSError: it cannot be read.
    """
    if not path.exists():
        return None
    if not path.is_file():
        raise NoDatabase("a folder" if path.is_dir() else "no plain file")
    with path.open("rb") as stream:
        found = stream.read(_HEAD)
    if not found:
        return None
    if len(found) < _HEAD or not found.startswith(_MAGIC):
        raise NoDatabase("a file that is no SQLite database")

    def number(start: int, stop: int) -> int:
        return int.from_bytes(found[start:stop], "big")

    tables = number(100, 101) != _LEAF or number(103, 105) > 0
    return Head(number(68, 72), number(60, 64), tables)


def tables(path: Path, *, locked: bool = False) -> set[str]:
    """The names of a database's tables as its file has them; a journal's are not seen.

    It is opened as a file that nobody writes, without a lock. If somebody does, that may fail;
    `locked` reads it properly.

    Raises:
        sqlite3.DatabaseError: it is damaged, or was written meanwhile.
    """
    mode = "mode=ro" if locked else "immutable=1"
    uri = f"file:{quote(str(path.absolute()))}?{mode}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        return {str(name) for (name,) in found}


def damage(path: Path) -> str | None:
    """The first fault that SQLite's own check finds in a whole database; None if there is none."""
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection:
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        return None  # locked, or gone: that is no damage
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if found == "ok" else found
