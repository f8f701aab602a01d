"""The files of a ledger, as copies see them: whether one is whole, has changed, is in the way."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ablate.ledger.schema import APPLICATION_ID, VERSION
from ablate.ledger.sqlite_files import NoDatabase, damage, head


def fault(path: Path) -> str | None:
    """Why a file is no whole ledger that this version reads; None: it is one.

    SQLite takes an empty file for a whole database, and any other program's for one too.
    """
    try:
        found = head(path)
    except (NoDatabase, sqlite3.DatabaseError) as error:
        return str(error)
    if found is None or not found.tables:
        return "an empty file"
    if found.application_id != APPLICATION_ID:
        return "a database of another program"
    if found.user_version > VERSION:
        return f"of version {found.user_version}; this ablate reads {VERSION} at most"
    return damage(path)


def state(ledger: Path) -> tuple[tuple[int, int], ...]:
    """Changes whenever the ledger does: sizes and times of the file and of its journal."""
    found = [ledger, ledger.with_name(f"{ledger.name}-wal")]
    stats = [path.stat() for path in found if path.exists()]
    return tuple((stat.st_size, stat.st_mtime_ns) for stat in stats)


def set_aside(ledger: Path) -> Path | None:
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
