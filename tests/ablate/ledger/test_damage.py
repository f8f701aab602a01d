"""A ledger's file that others change while it is open: the next write says so, and nothing waits.

`tests/faults/test_ledger_damage.py` does the same to whole sweeps.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ablate import api
from ablate.backends.this_process import run_cell
from ablate.ledger import ledger as ledger_module
from ablate.ledger.ledger import Ledger, Owner, send_heartbeats
from ablate.ledger.schema import LedgerDamage
from tests.ablate.synthetic import CONFIG
from tests.faults.driver import SPEC, options
from tests.faults.ledger_damage import KINDS, SAME_FILE
from tests.faults.polling import wait_until
from tests.unprivileged import open_folder, unprivileged
from trainables.words.databases import copy_database
from trainables.words.errors import ConfigError

ME = Owner.from_this_process()


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of several pages, none of which is in a journal."""
    path = tmp_path_factory.mktemp("grown") / "ledger.sqlite"
    with Ledger(path) as ledger:
        for i in range(300):
            ledger.claim(f"t{i}", "h", 0, CONFIG, ME)
    return path


@pytest.fixture
def path(grown: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(grown, tmp_path / "ledger.sqlite"))


@pytest.fixture
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(ledger_module, "FAILING_SECONDS", 0.2)


@contextmanager
def is_refused_at_once(*words: str) -> Iterator[None]:
    """A lock that nobody gives up would be waited for for a minute."""
    began = time.monotonic()
    with pytest.raises(LedgerDamage) as refused:
        yield
    assert time.monotonic() - began < 20
    assert all(word in str(refused.value) for word in ("ledger.sqlite: ", "restore a copy", *words))


def write(ledger: Ledger) -> None:
    ledger.record_epochs("t0", [{"epoch": 1, "steps": 1, "seconds": 0.1, "metrics": {}}])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SAME_FILE])
def test_the_next_write_says_what_happened_to_the_file(path: Path, kind: str) -> None:
    with Ledger(path) as ledger:
        write(ledger)
        copy_database(path, path.with_name("copy"))
        KINDS[kind](path)
        with is_refused_at_once("while it is in use"):
            write(ledger)
        with is_refused_at_once("while it is in use"):  # for the connection of another thread
            Ledger(path)
    assert not path.is_dir() or not any(path.iterdir())
    restore(path)


def restore(path: Path) -> None:
    """Do what the message says; the copy must be a ledger to read and write."""
    for left in path.parent.glob("ledger.sqlite*"):
        left.rename(left.with_name(f"away-{left.name}"))
    path.with_name("copy").rename(path)
    with Ledger(path) as ledger:
        assert len(ledger.list_epochs("t0")) == 1
        write(ledger)


@pytest.mark.parametrize("kind", SAME_FILE)
@pytest.mark.usefixtures("quick_heartbeats")
def test_heartbeats_notice_damage_that_leaves_the_file_its_size(path: Path, kind: str) -> None:
    stop = threading.Event()
    with Ledger(path) as ledger, send_heartbeats(ledger, ME, stop.set):
        write(ledger)
        copy_database(path, path.with_name("copy"))
        KINDS[kind](path)
        assert stop.wait(30)
        with is_refused_at_once():
            ledger.check_file()
        with is_refused_at_once():
            write(ledger)
    restore(path)


@pytest.mark.usefixtures("quick_heartbeats")
def test_a_ledger_that_nobody_can_open_any_more() -> None:
    with open_folder() as folder, unprivileged_folder(folder) as own:
        path, stop = own / "ledger.sqlite", threading.Event()
        with Ledger(path) as ledger, send_heartbeats(ledger, ME, stop.set):
            write(ledger)
            path.chmod(0)
            assert stop.wait(30)
            with pytest.raises(ConfigError, match="not writable"):
                write(ledger)
            path.chmod(0o644)
        with Ledger(path) as ledger:
            write(ledger)


@contextmanager
def unprivileged_folder(folder: Path) -> Iterator[Path]:
    """A folder of the user who is not root, as whom the block runs."""
    folder.chmod(0o777)
    with unprivileged():
        own = folder / "own"
        own.mkdir()
        yield own


def test_a_foreign_lock_ends_nothing(path: Path) -> None:
    """Checkpoints of others change the file, and a file that grows is none that was cut."""
    with Ledger(path) as ledger, Ledger(path) as other:
        for i in range(200):
            other.claim(f"more{i}", "h", 0, {"x": "y" * 20_000}, ME)
        other.query("PRAGMA wal_checkpoint(TRUNCATE)")
        write(ledger)
        assert ledger.file.find_damage_if_changed() is None


@pytest.fixture
def ignored_interrupt() -> Iterator[None]:
    """SIGINT is ignored, as in what a script starts with `&`."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("quick_heartbeats", "ignored_interrupt")
@pytest.mark.parametrize("kind", ["emptied", "deleted", "zeros"])
def test_a_cell_that_trains_here_ends_within_its_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    plan, settings = api.prepare(SPEC, options(str(tmp_path)))
    monkeypatch.setenv("SYN_STARTS", str(tmp_path / "starts"))
    monkeypatch.setenv("SYN_SLEEP", "100")

    def damage() -> None:
        wait_until((tmp_path / "starts").exists, "no trial started")
        with Ledger(settings.ledger) as ledger:  # so that the file has pages
            ledger.query("PRAGMA wal_checkpoint(TRUNCATE)")
        KINDS[kind](settings.ledger)

    thread = threading.Thread(target=damage)
    thread.start()
    with is_refused_at_once():
        run_cell(plan, settings, "tune/0000")
    thread.join()
