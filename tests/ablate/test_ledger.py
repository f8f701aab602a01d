"""Durable facts, claims, and first use by several processes at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ablate.ledger import Ledger, LedgerError
from ablate.owner import Owner
from tests.unprivileged import open_folder, unprivileged
from trainables.errors import ConfigError
from trainables.processes import host_name

ROOT = Path(__file__).resolve().parents[2]
DEAD = Owner(host_name(), 2**22 + 12345, 1.0)
FINAL: dict[str, Any] = {
    "evaluator": "retrieval-1",
    "evaluations": {"val": {"map_at_r": 0.5}},
    "epochs": 2,
    "steps": 20,
    "seconds": 1.5,
    "best_epoch": 2,
    "export": "best.safetensors",
    "provenance": {"device": "cpu"},
}
FIRST_USE = """
import sys, time
from ablate.ledger import Ledger
from ablate.owner import Owner
while time.time() < float(sys.argv[2]):
    pass
with Ledger(sys.argv[1]) as ledger:
    print(ledger.claim("t", "h", 0, {"a": 1}, Owner.me()))
    time.sleep(1.5)  # alive while the others ask
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def test_four_processes_at_once_on_a_fresh_file(tmp_path: Path) -> None:
    path, at = tmp_path / "deep" / "ledger.sqlite", time.time() + 2.0
    started = [
        subprocess.Popen(
            [sys.executable, "-c", FIRST_USE, str(path), str(at)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    told = [process.communicate(timeout=60) for process in started]
    assert not any(error for _, error in told), told
    assert sorted(out.strip() for out, _ in told) == ["busy", "busy", "busy", "mine"]


def test_a_trial_from_claim_to_fact(ledger: Ledger) -> None:
    me = Owner.me()
    assert ledger.claim("t", "h", 3, {"lr": 0.1}, me) == "mine"
    ledger.record_epochs(
        "t",
        [{"epoch": e, "steps": 10 * e, "seconds": 0.5, "metrics": {"m": e}} for e in (1, 2)],
    )
    ledger.record_final("t", FINAL)
    trial = ledger.trial("t")
    assert trial is not None and trial["status"] == "done" and trial["owner"] is None
    assert trial["config"] == {"lr": 0.1} and trial["provenance"] == {"device": "cpu"}
    assert [e["epoch"] for e in ledger.epochs("t", after=1)] == [2]
    assert ledger.evaluations("t") == {"val": {"map_at_r": 0.5}}
    assert ledger.evaluations("t", "another") == {}
    assert ledger.claim("t", "h", 3, {}, me) == "done"
    ledger.release("t", "interrupted", "too late")
    assert ledger.trial("t")["status"] == "done"  # type: ignore[index]


def test_further_evaluations_keep_the_trial(ledger: Ledger) -> None:
    me = Owner.me()
    assert ledger.claim_evaluation("t", me) == "failed"
    ledger.claim("t", "h", 0, {}, me)
    ledger.record_final("t", FINAL)
    assert ledger.claim_evaluation("t", me) == "mine"
    more = {**FINAL, "evaluations": {"test": {"map_at_r": 0.4}}, "seconds": 99.0}
    ledger.record_final("t", more, trained=False)
    assert set(ledger.evaluations("t")) == {"val", "test"}
    assert ledger.trial("t")["seconds"] == 1.5  # type: ignore[index]


def test_failures_stay_unless_retried(ledger: Ledger) -> None:
    me = Owner.me()
    ledger.claim("t", "h", 0, {}, me)
    ledger.release("t", "failed", "the loss is not finite")
    assert ledger.claim("t", "h", 0, {}, me) == "failed"
    assert ledger.claim("t", "h", 0, {}, me, retry_failed=True) == "mine"


def test_claims_of_the_dead_are_taken_over(ledger: Ledger) -> None:
    ledger.claim("t", "h", 0, {}, DEAD)
    assert ledger.claim("t", "h", 0, {}, Owner.me()) == "mine"
    ledger.claim("u", "h", 0, {}, DEAD)
    assert ledger.release_dead() == ["u"]
    assert ledger.trial("u")["status"] == "interrupted"  # type: ignore[index]


def test_another_hosts_claim_dies_with_its_heartbeat(ledger: Ledger) -> None:
    far = Owner("elsewhere", 1, 1.0)
    ledger.claim("t", "h", 0, {}, far)
    assert ledger.claim("t", "h", 0, {}, Owner.me()) == "busy"
    assert ledger.release_dead() == []
    assert ledger.claim("t", "h", 0, {}, Owner.me(), stale_after=-1.0) == "mine"


def test_a_process_with_a_reused_id_is_not_the_owner() -> None:
    me = Owner.me()
    assert me.alive(0.0) and Owner.parse(str(me)) == me
    assert not Owner(me.host, me.pid, me.start - 100).alive(time.time())


def test_the_first_proposal_stands(ledger: Ledger) -> None:
    ledger.put_proposal("k", 0, {"lr": 0.1}, "h1")
    ledger.put_proposal("k", 0, {"lr": 0.2}, "h2")
    assert ledger.proposals("k")[0]["params"] == {"lr": 0.1}


def test_a_file_that_is_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(ConfigError, match="no intact SQLite database"):
        Ledger(path)
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE notes(text)")
    with pytest.raises(ConfigError, match="another program"):
        Ledger(path)
    with pytest.raises(ConfigError, match="a folder"):
        Ledger(tmp_path)


def test_a_damaged_page_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        for i in range(50):
            ledger.claim(f"t{i}", "h", 0, {"x": "y" * 500}, Owner.me())
    with path.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(ConfigError, match="no intact SQLite database"), Ledger(path) as ledger:
        ledger.rows("SELECT * FROM trials")


def test_a_lock_is_told_not_waited_for_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with Ledger(path, timeout=0.2) as ledger, pytest.raises(LedgerError, match="locked"):
        ledger.claim("t", "h", 0, {}, Owner.me())
    holder.execute("ROLLBACK")


def test_a_full_disk_keeps_what_was_committed(ledger: Ledger) -> None:
    ledger.claim("kept", "h", 0, {}, Owner.me())
    pages = ledger.rows("PRAGMA page_count")[0]["page_count"]
    ledger.rows(f"PRAGMA max_page_count={pages}")
    with pytest.raises(LedgerError, match="Free some space"):
        for i in range(200):
            ledger.claim(f"t{i}", "h", 0, {"x": "y" * 2000}, Owner.me())
    ledger.rows("PRAGMA max_page_count=100000")
    assert ledger.trial("kept") is not None
    assert ledger.claim("after", "h", 0, {}, Owner.me()) == "mine"


def test_a_folder_that_cannot_be_written() -> None:
    with open_folder() as folder:
        folder.chmod(0o555)
        with unprivileged(), pytest.raises(ConfigError, match="writable"):
            Ledger(folder / "out" / "ledger.sqlite")
        folder.chmod(0o755)
