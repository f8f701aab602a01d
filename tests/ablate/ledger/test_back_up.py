"""A copy of a database that is being written, and who has it open."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ablate.ledger import sqlite_files
from ablate.ledger.sqlite_files import copy_database, has_exclusive_access, write_ahead

PAGES = 3000


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "database"
    write_ahead(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t(x)")
        connection.execute(f"INSERT INTO t VALUES (zeroblob({PAGES} * 4096))")
        connection.commit()
    return path


def test_a_writer_does_not_make_a_copy_begin_anew(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    with contextlib.closing(sqlite3.connect(database)) as writer:

        class Watched(sqlite3.Connection):
            def backup(self, target: sqlite3.Connection, **more: Any) -> None:
                def after_each_step(_: int, remaining: int, __: int) -> None:
                    left.append(remaining)
                    assert len(left) < 20, "it begins anew for ever"
                    writer.execute("INSERT INTO t VALUES (1)")
                    writer.commit()

                super().backup(target, progress=after_each_step, **more)

        connect = sqlite3.connect

        def watched(*args: Any, **more: Any) -> sqlite3.Connection:
            return connect(*args, factory=Watched, **more)

        monkeypatch.setattr(sqlite_files.sqlite3, "connect", watched)
        copy_database(database, tmp_path / "copy")
        monkeypatch.undo()
    assert left == [0]
    with contextlib.closing(sqlite3.connect(tmp_path / "copy")) as copy:
        sizes = copy.execute("SELECT count(*), max(length(x)) FROM t").fetchone()
        assert sizes == (1, PAGES * 4096)


def test_who_has_it_open_is_found_out_by_its_lock(database: Path) -> None:
    with contextlib.closing(sqlite3.connect(database)) as other:
        other.execute("SELECT count(*) FROM t").fetchone()
        assert not has_exclusive_access(database, timeout=0.1)
    assert has_exclusive_access(database, timeout=0.1)
    assert [path.name for path in database.parent.iterdir()] == [database.name]
    with contextlib.closing(sqlite3.connect(database)) as after:
        assert after.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_damaged_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "none"
    path.write_bytes(b"no database at all" * 100)
    assert has_exclusive_access(path) and path.read_bytes() == b"no database at all" * 100
