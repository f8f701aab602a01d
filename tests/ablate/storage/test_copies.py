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

from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.schema import LedgerError
from ablate.ledger.sqlite_files import has_exclusive_access
from ablate.storage import ledger_backup
from ablate.storage.ledger_backup import LEDGER, WORD, LedgerBackup
from ablate.storage.store import Storage
from trainables.errors import ConfigError

GONE = Owner("another-host", 7, 1.0)


def sweeps(path: Path) -> list[str]:
    with Ledger(path) as ledger:
        return [row["name"] for row in ledger.query("SELECT name FROM sweeps ORDER BY name")]


def learns(path: Path, name: str) -> None:
    with Ledger(path) as ledger:
        ledger.put_sweep(name, name, {}, {})


class Machine:
    """An output folder, and what it was told."""

    def __init__(self, folder: Path, there: Path, owner: Owner | None = None) -> None:
        self.ledger, self.there, self.told = folder / LEDGER, there, list[str]()
        self.owner, self.others = (
            Owner.from_this_process() if owner is None else owner,
            list[Owner](),
        )

    def copies(self, seconds: float = 1000.0) -> LedgerBackup:
        return LedgerBackup(
            Storage(str(self.there)),
            self.ledger,
            self.owner,
            self.told.append,
            others=lambda: self.others,
            seconds=seconds,
        )

    def runs(self, *names: str) -> None:
        """One run that learns something."""
        copies = self.copies()
        copies.restore_if_newer()
        with Ledger(self.ledger), copies:
            for name in names:
                learns(self.ledger, name)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


def word(there: Path, ago: float = 0.0, **more: object) -> None:
    """ago: seconds since it was written, by the storage's clock."""
    told = json.loads((there / WORD).read_text())
    (there / WORD).write_text(json.dumps({**told, **more}))
    os.utime(there / WORD, (time.time() - ago,) * 2)


def test_the_first_machine_that_comes_back_takes_what_the_second_found(
    tmp_path: Path, there: Path
) -> None:
    one, two = Machine(tmp_path / "one", there), Machine(tmp_path / "two", there, GONE)
    one.runs("a")
    word(there, ago=1000, owner=str(GONE), place="elsewhere")
    two.runs("b")
    learns(one.ledger, "nobody's")  # after its last copy
    word(there, ago=1000)
    one.runs("c")
    assert sweeps(one.ledger) == sweeps(there / LEDGER) == ["a", "b", "c"]
    (aside,) = one.ledger.parent.glob("*.aside-1")
    assert sweeps(aside) == ["a", "nobody's"] and any(str(aside) in text for text in one.told)


def test_the_same_folder_goes_on_with_its_own(tmp_path: Path, there: Path) -> None:
    one = Machine(tmp_path / "one", there)
    one.runs("a")
    learns(one.ledger, "after the last copy")
    one.runs("b")
    assert sweeps(one.ledger) == sweeps(there / LEDGER) == ["a", "after the last copy", "b"]
    assert one.told == []


def test_nobody_else_drives_from_it_meanwhile(tmp_path: Path, there: Path) -> None:
    one, two = Machine(tmp_path / "one", there), Machine(tmp_path / "two", there)
    one.runs("a")
    # Its own clock says an hour ago; the storage's, by which all are judged, five seconds.
    at = time.time() - 3600
    word(there, ago=5, owner=str(GONE), at=at, place="elsewhere", over=False)
    with pytest.raises(ConfigError, match=r"process 7 on another-host drives \(heard of 5 s ago\)"):
        two.copies().restore_if_newer()
    assert not two.ledger.exists()


def test_a_storage_that_goes_away_stops_nothing_and_is_told_of_once(
    tmp_path: Path, there: Path
) -> None:
    one = Machine(tmp_path / "one", there)
    with Ledger(one.ledger), one.copies(0.02):
        there.rename(tmp_path / "gone")
        there.write_text("no folder")
        end = time.monotonic() + 20
        while not one.told:
            learns(one.ledger, "a")
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(0.2)
        assert len(one.told) == 1 and one.told[0].startswith("warning: storage: ")
        there.unlink()
        (tmp_path / "gone").rename(there)
        while len(one.told) < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
    assert one.told[1].endswith("has everything again") and sweeps(there / LEDGER) == ["a"]


def database(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE trials(x)")


def later(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=999")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.write_bytes(b"something else, of some length" * 100), "no SQLite"),
        (lambda path: path.write_bytes(b""), "an empty file"),
        (lambda path: path.write_bytes(path.read_bytes()[:8192]), "malformed"),
        (database, "a database of another program"),
        (later, "of version 999; this ablate reads"),
        (Path.unlink, "it is not there"),
    ],
)
def test_a_copy_that_is_no_ledger_is_not_taken(
    tmp_path: Path, there: Path, spoil: Callable[[Path], None], why: str
) -> None:
    one, two = Machine(tmp_path / "one", there), Machine(tmp_path / "two", there)
    one.runs("a")
    word(there, ago=1000, owner=str(GONE), place="elsewhere")
    spoil(there / LEDGER)
    with pytest.raises(ConfigError, match=f"is no whole ledger .*{why}"):
        two.copies().restore_if_newer()
    assert list(two.ledger.parent.iterdir()) == []


def kept(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("place", ["elsewhere", None])
def test_a_ledger_that_was_never_stored_there_stays_and_so_does_the_stored_one(
    tmp_path: Path, there: Path, place: str | None
) -> None:
    """place None: of this very folder, whose ledger was removed and made anew."""
    one = Machine(tmp_path / "one", there)
    one.runs("a")
    shutil.rmtree(tmp_path / "one")
    word(there, **({"owner": str(GONE), "place": place} if place else {}))
    learns(one.ledger, "its own")
    before, stored = kept(tmp_path / "one"), kept(there)
    with pytest.raises(ConfigError, match=r"was never stored there; .*another --storage"):
        one.copies().restore_if_newer()
    assert kept(tmp_path / "one") == before and kept(there) == stored


@pytest.mark.parametrize("told", [True, False])
def test_a_ledger_that_somebody_works_on_is_not_replaced(
    tmp_path: Path, there: Path, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """told: as a driver does; else it has the ledger open, and that is all."""
    one, two = Machine(tmp_path / "one", there), Machine(tmp_path / "two", there)
    one.runs("a")
    word(there, ago=1000, owner=str(GONE), place="elsewhere")
    two.runs("b")
    monkeypatch.setattr(
        ledger_backup, "has_exclusive_access", partial(has_exclusive_access, timeout=0.1)
    )
    with contextlib.nullcontext() if told else Ledger(one.ledger):
        one.others = [GONE] if told else []
        who = "process 7 on another-host" if told else "another process"
        word(there, place="elsewhere")
        with pytest.raises(ConfigError, match=f"and {who} is at work on that one"):
            one.copies().restore_if_newer()
    assert sweeps(one.ledger) == ["a"] and not [*one.ledger.parent.glob("*aside*")]
    one.others = []
    one.runs()
    assert sweeps(one.ledger) == ["a", "b"]


def test_after_a_clean_end_another_machine_goes_on_at_once(tmp_path: Path, there: Path) -> None:
    one, two = Machine(tmp_path / "one", there), Machine(tmp_path / "two", there)
    with Ledger(one.ledger), one.copies():
        word(there, owner=str(GONE), place="elsewhere")
        with pytest.raises(ConfigError, match="end that run, or wait"):
            two.copies().restore_if_newer()
        word(there, place=one.copies()._place)
    one.others = [GONE]
    one.runs()
    word(there, owner=str(GONE), place="elsewhere")
    with pytest.raises(ConfigError, match="end that run, or wait"):
        two.copies().restore_if_newer()  # of two drivers one has ended
    word(there, place=one.copies()._place)
    one.others = []
    one.runs("a")
    word(there, owner=str(GONE), place="elsewhere")
    two.runs()
    assert sweeps(two.ledger) == ["a"]


def test_no_room_for_a_copy_is_one_line(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Machine(tmp_path / "one", there), Machine(tmp_path / "two", there)

    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, Ledger(one.ledger):
        patched.setattr(ledger_backup, "copy_database", no_room)
        with pytest.raises(LedgerError, match=r"No space left.*make room"), one.copies():
            pass
    one.runs("a")
    word(there, owner=str(GONE), place="elsewhere")
    monkeypatch.setattr(Storage, "download", no_room)
    with pytest.raises(LedgerError, match=r"No space left.*make room"):
        two.copies().restore_if_newer()


def test_a_word_of_somebody_else_is_refused(tmp_path: Path, there: Path) -> None:
    there.mkdir()
    (there / WORD).write_text('{"copy": 1}')
    with pytest.raises(ConfigError, match=r"ledger\.json is none of ours"):
        Machine(tmp_path / "one", there).copies().restore_if_newer()
