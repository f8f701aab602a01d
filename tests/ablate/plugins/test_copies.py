"""A ledger's copies: what another machine finds, and what nobody writes over."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ablate.ledger.ledger import Ledger, Owner
from ablate.ledger.schema import LedgerError
from ablate.plugins import storage as ledger_backup
from ablate.plugins.storage import LEASE, LEDGER, LedgerBackup, Storage
from trainables.words.databases import has_exclusive_access
from trainables.words.errors import ConfigError

GONE = Owner("another-host", 7, 1.0)


def list_sweeps(path: Path) -> list[str]:
    with Ledger(path) as ledger:
        return [row["name"] for row in ledger.query("SELECT name FROM sweeps ORDER BY name")]


def add_sweep(path: Path, name: str) -> None:
    with Ledger(path) as ledger:
        ledger.put_sweep(name, name, {}, {})


class Machine:
    """An output folder, and the lines that its user was shown."""

    def __init__(self, folder: Path, there: Path) -> None:
        self.ledger, self.there = folder / LEDGER, there
        self.lines: list[str] = []
        self.others: list[Owner] = []

    def copies(self, seconds: float = 1000.0) -> LedgerBackup:
        return LedgerBackup(
            Storage(str(self.there)),
            self.ledger,
            Owner.from_this_process(),
            self.lines.append,
            list_other_drivers=lambda: self.others,
            seconds=seconds,
        )

    def run(self, *names: str) -> None:
        """One run that adds sweeps."""
        copies = self.copies()
        copies.restore_if_newer()
        with Ledger(self.ledger), copies:
            for name in names:
                add_sweep(self.ledger, name)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


@pytest.fixture
def one(tmp_path: Path, there: Path) -> Machine:
    """A machine whose ledger with sweep "a" is stored."""
    machine = Machine(tmp_path / "one", there)
    machine.run("a")
    return machine


@pytest.fixture
def two(tmp_path: Path, there: Path) -> Machine:
    return Machine(tmp_path / "two", there)


def edit_lease(there: Path, ago: float = 0.0, **changes: object) -> None:
    """ago: seconds since it was written, by the storage's clock."""
    lease = json.loads((there / LEASE).read_text())
    (there / LEASE).write_text(json.dumps({**lease, **changes}))
    os.utime(there / LEASE, (time.time() - ago,) * 2)


def test_the_first_machine_that_comes_back_takes_what_the_second_found(
    one: Machine, two: Machine, there: Path
) -> None:
    edit_lease(there, ago=1000, owner=str(GONE), place="elsewhere")
    two.run("b")
    add_sweep(one.ledger, "nobody's")  # after its last copy
    edit_lease(there, ago=1000, owner=str(GONE), place="elsewhere")
    one.run("c")
    assert list_sweeps(one.ledger) == list_sweeps(there / LEDGER) == ["a", "b", "c"]
    (aside,) = one.ledger.parent.glob("*.aside-1")
    assert list_sweeps(aside) == ["a", "nobody's"]
    assert any(str(aside) in line for line in one.lines)


def test_the_same_folder_goes_on_with_its_own(one: Machine, there: Path) -> None:
    add_sweep(one.ledger, "after the last copy")
    one.run("b")
    assert list_sweeps(one.ledger) == ["a", "after the last copy", "b"]
    assert list_sweeps(there / LEDGER) == list_sweeps(one.ledger) and one.lines == []


def test_nobody_else_drives_from_it_meanwhile(one: Machine, two: Machine, there: Path) -> None:
    # Its own clock says an hour ago; the storage's, by which all are judged, five seconds.
    an_hour_ago = time.time() - 3600
    edit_lease(there, ago=5, owner=str(GONE), at=an_hour_ago, place="elsewhere", over=False)
    with pytest.raises(
        ConfigError, match=r"process 7 on another-host runs from .*\(seen 5 s ago\)"
    ):
        two.copies().restore_if_newer()
    assert not two.ledger.exists()


def test_a_storage_that_goes_away_stops_nothing_and_is_told_of_once(
    tmp_path: Path, there: Path
) -> None:
    machine = Machine(tmp_path / "one", there)
    with Ledger(machine.ledger), machine.copies(0.02):
        there.rename(tmp_path / "gone")
        there.write_text("no folder")
        end = time.monotonic() + 20
        while not machine.lines:
            add_sweep(machine.ledger, "a")
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(0.2)
        assert len(machine.lines) == 1 and machine.lines[0].startswith("warning: storage: ")
        there.unlink()
        (tmp_path / "gone").rename(there)
        while len(machine.lines) < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
    assert machine.lines[1].endswith("is up to date again")
    assert list_sweeps(there / LEDGER) == ["a"]


def execute(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.write_bytes(b"something else, of some length" * 100), "no SQLite"),
        (lambda path: path.write_bytes(b""), "it is no ledger"),
        (lambda path: path.write_bytes(path.read_bytes()[:8192]), "malformed"),
        (lambda path: execute(path, "PRAGMA application_id=1"), "it is no ledger"),
        (
            lambda path: execute(path, "PRAGMA user_version=999"),
            "it has version 999; this ablate",
        ),
        (Path.unlink, "it does not exist"),
    ],
)
def test_a_copy_that_is_no_ledger_is_not_taken(
    one: Machine, two: Machine, there: Path, spoil: Callable[[Path], None], why: str
) -> None:
    edit_lease(there, ago=1000, owner=str(GONE), place="elsewhere")
    spoil(there / LEDGER)
    with pytest.raises(ConfigError, match=f"is not a complete ledger .*{why}"):
        two.copies().restore_if_newer()
    assert list(two.ledger.parent.iterdir()) == []


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("place", ["elsewhere", None])
def test_a_ledger_that_was_never_stored_there_stays_and_so_does_the_stored_one(
    one: Machine, there: Path, place: str | None
) -> None:
    """place None: of this very folder, whose ledger was removed and made anew."""
    folder = one.ledger.parent
    shutil.rmtree(folder)
    edit_lease(there, **({"owner": str(GONE), "place": place} if place else {}))
    add_sweep(one.ledger, "its own")
    before, stored = read_files(folder), read_files(there)
    with pytest.raises(ConfigError, match=r"was never copied to this storage. .*another --storage"):
        one.copies().restore_if_newer()
    assert read_files(folder) == before and read_files(there) == stored


@pytest.mark.parametrize("is_driver", [True, False])
def test_a_ledger_that_somebody_works_on_is_not_replaced(
    one: Machine, two: Machine, there: Path, is_driver: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a driver, or by a process that has the ledger open and no more."""
    edit_lease(there, ago=1000, owner=str(GONE), place="elsewhere")
    two.run("b")
    monkeypatch.setattr(
        ledger_backup, "has_exclusive_access", partial(has_exclusive_access, timeout=0.1)
    )
    with contextlib.nullcontext() if is_driver else Ledger(one.ledger):
        one.others = [GONE] if is_driver else []
        who = "process 7 on another-host" if is_driver else "another process"
        edit_lease(there, place="elsewhere")
        with pytest.raises(ConfigError, match=f"which {who} uses"):
            one.copies().restore_if_newer()
    assert list_sweeps(one.ledger) == ["a"] and not [*one.ledger.parent.glob("*aside*")]
    one.others = []
    one.run()
    assert list_sweeps(one.ledger) == ["a", "b"]


def test_after_a_clean_end_another_machine_goes_on_at_once(
    one: Machine, two: Machine, there: Path
) -> None:
    with Ledger(one.ledger), one.copies():
        edit_lease(there, owner=str(GONE), place="elsewhere")
        with pytest.raises(ConfigError, match="Stop that run, or wait"):
            two.copies().restore_if_newer()
        edit_lease(there, place=one.copies()._place)
    one.others = [GONE]
    one.run()
    edit_lease(there, owner=str(GONE), place="elsewhere")
    with pytest.raises(ConfigError, match="Stop that run, or wait"):
        two.copies().restore_if_newer()  # of two drivers one has ended
    edit_lease(there, place=one.copies()._place)
    one.others = []
    one.run()
    edit_lease(there, owner=str(GONE), place="elsewhere")
    two.run()
    assert list_sweeps(two.ledger) == ["a"]


def test_no_room_for_a_copy_is_one_line(
    one: Machine, two: Machine, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, Ledger(one.ledger):
        patched.setattr(ledger_backup, "copy_database", no_room)
        with pytest.raises(LedgerError, match=r"No space left.*Free space"), one.copies():
            pass
    edit_lease(there, ago=1000, owner=str(GONE), place="elsewhere")
    monkeypatch.setattr(Storage, "download", no_room)
    with pytest.raises(LedgerError, match=r"No space left.*Free space"):
        two.copies().restore_if_newer()
