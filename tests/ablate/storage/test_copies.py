"""A ledger's copies: what another machine finds, and what nobody writes over."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from pathlib import Path

import pytest

from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner, host_name
from ablate.storage.copies import LEDGER, WORD, Copies
from ablate.storage.store import Storage
from trainables.errors import ConfigError

GONE = Owner("another-host", 7, 1.0)


def sweeps(path: Path) -> list[str]:
    with Ledger(path) as ledger:
        return [row["name"] for row in ledger.rows("SELECT name FROM sweeps ORDER BY name")]


def learns(path: Path, name: str) -> None:
    with Ledger(path) as ledger:
        ledger.put_sweep(name, name, {}, {})


class Machine:
    """An output folder, and what it was told."""

    def __init__(self, folder: Path, there: Path, owner: Owner | None = None) -> None:
        self.ledger, self.there, self.told = folder / LEDGER, there, list[str]()
        self.owner = Owner.me() if owner is None else owner

    def copies(self, seconds: float = 1000.0) -> Copies:
        return Copies(Storage(str(self.there)), self.ledger, self.owner, self.told.append, seconds)

    def runs(self, *names: str) -> None:
        """One run that learns something."""
        copies = self.copies()
        copies.join()
        with Ledger(self.ledger), copies:
            for name in names:
                learns(self.ledger, name)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


def word(there: Path, **more: object) -> None:
    told = json.loads((there / WORD).read_text())
    (there / WORD).write_text(json.dumps({**told, **more}))


def test_another_machine_goes_on_from_the_copy(tmp_path: Path, there: Path) -> None:
    one, two = Machine(tmp_path / "one", there), Machine(tmp_path / "two", there)
    one.runs("a", "b")
    word(there, owner=str(GONE), at=time.time() - 1000, place="elsewhere")
    two.runs("c")
    assert sweeps(two.ledger) == sweeps(there / LEDGER) == ["a", "b", "c"]
    assert "the ledger came from" in two.told[0]
    with contextlib.closing(sqlite3.connect(two.ledger)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_first_machine_that_comes_back_takes_what_the_second_found(
    tmp_path: Path, there: Path
) -> None:
    one, two = Machine(tmp_path / "one", there), Machine(tmp_path / "two", there, GONE)
    one.runs("a")
    word(there, owner=str(GONE), at=0, place="elsewhere")
    two.runs("b")
    learns(one.ledger, "nobody's")  # after its last copy
    word(there, at=0)
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
    word(there, owner=str(GONE), at=time.time() - 5, place="elsewhere")
    with pytest.raises(ConfigError, match=r"process 7 on another-host drives \(heard of 5 s ago\)"):
        two.copies().join()
    assert not two.ledger.exists()


def test_two_drivers_of_one_ledger_copy_it_both(tmp_path: Path, there: Path) -> None:
    one, two = Machine(tmp_path / "one", there), Machine(tmp_path / "one", there)
    first, second = one.copies(), two.copies()
    with Ledger(one.ledger), first:
        second.join()
        with second:
            learns(one.ledger, "a")
        learns(one.ledger, "b")
    assert sweeps(there / LEDGER) == ["a", "b"] and one.told == two.told == []


def test_while_it_runs_it_is_copied_now_and_then(tmp_path: Path, there: Path) -> None:
    one = Machine(tmp_path / "one", there)
    with Ledger(one.ledger), one.copies(0.05):
        learns(one.ledger, "a")
        end = time.monotonic() + 20
        while sweeps(there / LEDGER) != ["a"]:
            assert time.monotonic() < end
            time.sleep(0.02)


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


def test_a_copy_that_is_no_ledger_is_not_taken(tmp_path: Path, there: Path) -> None:
    one, two = Machine(tmp_path / "one", there), Machine(tmp_path / "two", there)
    one.runs("a")
    word(there, owner=str(GONE), at=0, place="elsewhere")
    (there / LEDGER).write_bytes(b"something else entirely, long enough to be looked at" * 100)
    with pytest.raises(ConfigError, match="which is no whole ledger"):
        two.copies().join()
    assert list(two.ledger.parent.iterdir()) == []


def test_a_word_of_somebody_else_is_refused(tmp_path: Path, there: Path) -> None:
    there.mkdir()
    (there / WORD).write_text('{"copy": 1}')
    with pytest.raises(ConfigError, match=r"ledger\.json is none of ours"):
        Machine(tmp_path / "one", there).copies().join()


def test_a_place_names_its_machine(tmp_path: Path, there: Path) -> None:
    Machine(tmp_path / "one", there).runs("a")
    told = json.loads((there / WORD).read_text())
    assert told["place"].startswith(host_name()) and told["owner"] == str(Owner.me())
