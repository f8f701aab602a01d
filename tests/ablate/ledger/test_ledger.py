"""Durable facts, claims, and first use by several processes at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from ablate.ledger import ledger as ledger_module
from ablate.ledger.facts import Sources
from ablate.ledger.ledger import Ledger, Owner, send_heartbeats
from ablate.ledger.schema import LedgerError, open_connection
from tests.ablate.synthetic import CONFIG, FINAL
from tests.unprivileged import open_folder, unprivileged
from trainables.machine.processes import host_name
from trainables.words.databases import find_damage, read_header
from trainables.words.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
DEAD = Owner(host_name(), 2**22 + 12345, 1.0)
CLASSES = {"digest": "0" * 16, "metrics": {"map_at_r": [[0.5, 3]]}}
FIRST_USE = """
import sys
from ablate.ledger.ledger import Ledger
from ablate.ledger.ledger import Owner
print("ready", flush=True)
sys.stdin.readline()
with Ledger(sys.argv[1]) as ledger:
    print(ledger.claim("t", "h", 0, {"a": 1}, Owner.from_this_process()), flush=True)
    sys.stdin.readline()  # alive while the others ask
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.mark.slow
def test_four_processes_at_once_on_a_fresh_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FIRST_USE, str(tmp_path / "deep" / "ledger.sqlite")]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for _ in range(4)
    ]
    answers = []
    for _ in range(2):
        answers = [process.stdout.readline().strip() for process in processes]
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
    assert sorted(answers) == ["busy", "busy", "busy", "mine"]


def test_a_trial_from_claim_to_fact(ledger: Ledger) -> None:
    me = Owner.from_this_process()
    assert ledger.claim("t", "h", 3, CONFIG, me) == "mine"
    ledger.record_epochs(
        "t",
        [{"epoch": e, "steps": 10 * e, "seconds": 0.5, "metrics": {"m": e}} for e in (1, 2)],
    )
    ledger.record_final("t", FINAL)
    trial = ledger.get_trial("t")
    assert trial is not None and trial["status"] == "done" and trial["owner"] is None
    assert trial["config"] == CONFIG and trial["provenance"] == {"device": "cpu"}
    assert [e["epoch"] for e in ledger.list_epochs("t", after=1)] == [2]
    assert ledger.get_evaluations("t") == {"val": {"map_at_r": 0.5}}
    assert ledger.get_evaluations("t", "another") == {}
    assert ledger.claim("t", "h", 3, {}, me) == "done"
    ledger.release("t", "interrupted", "too late")
    assert ledger.get_trial("t")["status"] == "done"  # type: ignore[index]


def test_failures_stay_unless_retried(ledger: Ledger) -> None:
    me = Owner.from_this_process()
    ledger.claim("t", "h", 0, {}, me)
    ledger.release("t", "failed", "the loss is not finite")
    assert ledger.claim("t", "h", 0, {}, me) == "failed"
    assert ledger.claim("t", "h", 0, {}, me, retry_failed=True) == "mine"


def test_claims_of_the_dead_are_taken_over(ledger: Ledger) -> None:
    ledger.claim("t", "h", 0, {}, DEAD)
    assert ledger.claim("t", "h", 0, {}, Owner.from_this_process()) == "mine"
    ledger.claim("u", "h", 0, {}, DEAD)
    assert ledger.release_dead() == ["u"]
    assert ledger.get_trial("u")["status"] == "interrupted"  # type: ignore[index]


def test_a_process_with_a_reused_id_is_not_the_owner() -> None:
    me = Owner.from_this_process()
    assert me.is_alive(0.0) and Owner.parse(str(me)) == me
    assert not Owner(me.host, me.pid, me.start - 100).is_alive(time.time())


def test_another_hosts_claim_dies_with_its_heartbeat(ledger: Ledger) -> None:
    far = Owner("elsewhere", 1, 1.0)
    ledger.claim("t", "h", 0, {}, far)
    assert ledger.claim("t", "h", 0, {}, Owner.from_this_process()) == "busy"
    assert ledger.release_dead() == []
    with ledger.begin_transaction() as db:
        db.execute("UPDATE trials SET heartbeat=heartbeat-1000")
    assert ledger.claim("t", "h", 0, {}, Owner.from_this_process()) == "mine"


@pytest.mark.parametrize(
    ("error", "warnings"),
    [
        (ConfigError("ledger", "it is not writable"), 1),
        (sqlite3.OperationalError("busy"), 1),
        (OSError(5), 1),
        (LedgerError("the disk is full"), 0),  # the driver's next write ends the run with it
    ],
)
def test_a_heartbeat_goes_on_after_errors(
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    warnings: int,
) -> None:
    real, tries, recorded = Ledger.record_heartbeat, list[Owner](), threading.Event()

    def record(self: Ledger, owner: Owner) -> None:
        tries.append(owner)
        if len(tries) < 3:
            raise error
        real(self, owner)
        recorded.set()

    monkeypatch.setattr(Ledger, "record_heartbeat", record)
    monkeypatch.setattr(ledger_module, "HEARTBEAT_SECONDS", 0.01)
    with send_heartbeats(ledger, Owner.from_this_process()):
        assert recorded.wait(60)
    assert len(caplog.records) == warnings


def test_a_held_trial_that_was_interrupted_is_not_claimed(ledger: Ledger) -> None:
    """Its holder deletes or fetches files of it in storage."""
    far, here = Owner("elsewhere", 1, 1.0), Owner.from_this_process()
    ledger.claim("t", "h", 0, {}, here)
    ledger.release("t", "interrupted")
    assert ledger.hold("t", far) and ledger.claim("t", "h", 0, {}, here) == "busy"
    ledger.release_hold("t", far)
    assert ledger.claim("t", "h", 0, {}, here) == "mine"


def test_a_first_use_that_hangs_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with FileLock(f"{path}.lock"), pytest.raises(LedgerError, match="Another process is creating"):
        open_connection(path, timeout=0.1)


def test_what_is_no_json_is_refused(ledger: Ledger) -> None:
    with pytest.raises(TypeError, match="PosixPath"):
        ledger.put_sweep("s", "name", {"a": Path("b")}, {})


def test_the_first_proposal_stands(ledger: Ledger) -> None:
    ledger.put_proposal("k", 0, {"lr": 0.1}, "h1")
    ledger.put_proposal("k", 0, {"lr": 0.2}, "h2")
    assert ledger.list_proposals("k")[0]["params"] == {"lr": 0.1}


def before_folds_came_first(path: Path) -> list[dict[str, Any]]:
    """A ledger of version 4, as SQLite keeps one: its key's last column stands last."""
    with Ledger(path) as ledger:
        ledger.claim("t-s0", "h", 0, CONFIG, Owner.from_this_process())
        ledger.record_final("t-s0", FINAL)
        cell = {"study": "a", "seed": 0, "trial_id": "t-s0", "coords": {"x": 1}}
        ledger.put_cells("s", [cell | {"cell": f"c{i}", "idx": i} for i in range(3)])
        ledger.put_cells("s", [cell | {"cell": "c0", "idx": 0, "fold": 1}])
        cells = ledger.list_cells("s")
    raw = sqlite3.connect(path, isolation_level=None)
    raw.executescript(
        "BEGIN; DROP INDEX cells_by_trial; ALTER TABLE cells RENAME TO new;"
        "CREATE TABLE cells(sweep_id TEXT NOT NULL, study TEXT NOT NULL, cell TEXT NOT NULL, "
        "seed INTEGER NOT NULL, trial_id TEXT NOT NULL, coords_json TEXT NOT NULL, "
        "idx INTEGER NOT NULL, fold INTEGER NOT NULL DEFAULT -1, "
        "PRIMARY KEY(sweep_id, study, cell, seed, fold)) WITHOUT ROWID;"
        "INSERT INTO cells SELECT sweep_id, study, cell, seed, trial_id, coords_json, idx, fold "
        "FROM new; DROP TABLE new; CREATE INDEX cells_by_trial ON cells(trial_id);"
        "ALTER TABLE evaluations DROP COLUMN recorded; ALTER TABLE trials DROP COLUMN checkpoint;"
        "PRAGMA user_version=4; COMMIT;"
    )
    raw.close()
    return cells


def test_a_ledger_of_before_is_migrated_by_whoever_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    before = before_folds_came_first(path)

    def opened(_: int) -> list[dict[str, Any]]:
        with Ledger(path) as ledger:
            return ledger.list_cells("s")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(opened, range(8))) == [before] * 8
    with Ledger(path) as ledger:
        assert find_damage(path) is None
        assert ledger.get_evaluations("t-s0") == FINAL["evaluations"]
        assert ledger.get_recorded_times("t-s0") == {}, "nobody knows when"
        ledger.put_checkpoint("t-s0", "trials/t-s0.1/checkpoint_000000")
        trial = ledger.get_trial("t-s0")
        assert trial is not None and trial["checkpoint"] == "trials/t-s0.1/checkpoint_000000"
        ledger.put_cells("s", [before[0] | {"idx": 7}])
        assert len(ledger.list_cells("s")) == len(before)
        with (
            pytest.raises(sqlite3.IntegrityError),
            ledger.begin_transaction() as db,
        ):  # an older ablate's order
            db.execute("INSERT INTO cells VALUES ('s', 'a', 'new', 0, 't-s0', '{}', 1, -1)")


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        (1, ["DROP TABLE stops"]),
        (2, ["DROP TABLE beside"]),
        (7, ["DROP TABLE warm_starts"]),
        (8, ["DROP TABLE infeasible"]),
        (9, ["DROP TABLE looks", "ALTER TABLE evaluations DROP COLUMN classes_json"]),
        (
            5,
            [
                *("DROP TABLE sources", "DROP TABLE same_code"),
                "ALTER TABLE trials DROP COLUMN source",
                "ALTER TABLE evaluations DROP COLUMN source",
            ],
        ),
    ],
)
def test_a_ledger_of_before_gets_what_it_lacks(
    ledger: Ledger, version: int, changes: list[str]
) -> None:
    ledger.claim("t", "h", 0, CONFIG, Owner.from_this_process())
    ledger.record_final("t", FINAL)
    ledger.put_proposal("k", 0, {"lr": 0.1}, "h")
    with ledger.begin_transaction() as db:
        for sql in (*changes, f"PRAGMA user_version={version}"):
            db.execute(sql)
    with Ledger(ledger.path) as later:
        trial = later.get_trial("t")
        assert trial is not None and trial["status"] == "done" and trial["source"] is None
        assert later.list_evaluator_sources("t") == [None]
        assert later.get_classes("t") == {}, "nobody knows the values by class"
        later.record_final("t", FINAL | {"classes": {"val": CLASSES}})
        assert later.get_classes("t") == {"val": CLASSES}
        assert Sources(later).find_differing(trial["source"], [None]) == ()
        assert later.list_proposals("k")[0]["beside"] == ()
        later.put_stop("s", "study", "cell", 3)
        assert later.get_stops("s", "study") == {"cell": 3}
        assert later.get_warm_start("s", "study") is None
        later.put_warm_start("s", "study", ["t"])
        assert later.get_warm_start("s", "study") == ["t"]
        assert later.list_proposals("k")[0]["infeasible"] is None
        later.put_infeasible("k", 0, "s", "study", {"memory": 3e10})
        assert later.list_proposals("k")[0]["infeasible"] == {"memory": 3e10}


def test_a_trial_s_end_does_not_move(ledger: Ledger) -> None:
    """MLflow's points carry it: moved, they would be logged once more."""
    me = Owner.from_this_process()
    ledger.claim("t", "h", 0, CONFIG, me)
    ledger.record_epochs("t", [{"epoch": 1, "steps": 1, "seconds": 0.5, "metrics": {"m": 1.0}}])
    again = {"epoch": 1, "steps": 1, "seconds": 9.5, "metrics": {"m": 1.0}}
    ledger.record_final("t", FINAL | {"classes": {"val": CLASSES}}, [again])
    assert [row["seconds"] for row in ledger.list_epochs("t")] == [0.5]
    before, recorded = ledger.get_trial("t"), ledger.get_recorded_times("t")
    assert before is not None and recorded == {"val": before["ended"]}
    ledger.claim_evaluation("t", me)
    ledger.release("t", "interrupted", "stopped")
    assert ledger.claim_evaluation("t", DEAD) == "mine"
    assert ledger.release_dead() == ["t"]
    assert ledger.claim_evaluation("t", me) == "mine"
    more = {"val": {"map_at_r": 0.5000001, "nmi": 0.9}, "test": {"nmi": 0.8}}
    other = {"digest": "1" * 16, "metrics": {"map_at_r": [[0.4, 2]]}}
    classes = {"val": other, "test": other}
    ledger.record_final("t", {**FINAL, "evaluations": more, "classes": classes}, trained=False)
    assert ledger.get_classes("t") == {"val": CLASSES, "test": other}
    after = ledger.get_trial("t")
    assert after is not None
    assert {**after, "heartbeat": 0} == {**before, "heartbeat": 0}
    assert ledger.get_evaluations("t")["val"] == {"map_at_r": 0.5, "nmi": 0.9}
    times = ledger.get_recorded_times("t")
    assert times["val"] == recorded["val"] < times["test"]


def test_looking_at_an_open_ledger_keeps_its_locks(tmp_path: Path) -> None:
    """Without them another process would delete the journal that this one goes on writing."""
    path = tmp_path / "ledger.sqlite"
    code = (
        "import sys; from ablate.ledger.ledger import Ledger; "
        "print(Ledger(sys.argv[1]).get_trial('t') is None)"
    )
    with Ledger(path) as ledger:
        for look in (read_header, find_damage, lambda path: Ledger(path).close()):
            look(path)
        for is_unknown in ("True", "False"):
            command = [sys.executable, "-c", code, str(path)]
            assert subprocess.check_output(command, cwd=ROOT, text=True).strip() == is_unknown
            ledger.claim("t", "h", 0, {}, Owner.from_this_process())


def test_a_damaged_page_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        for i in range(50):
            ledger.claim(f"t{i}", "h", 0, {"x": "y" * 500}, Owner.from_this_process())
    with path.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(ConfigError, match="no intact SQLite database"), Ledger(path) as ledger:
        ledger.query("SELECT * FROM trials")


def test_a_lock_is_told_not_waited_for_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with Ledger(path, timeout=0.2) as ledger, pytest.raises(LedgerError, match="locked"):
        ledger.claim("t", "h", 0, {}, Owner.from_this_process())
    holder.execute("ROLLBACK")


def test_a_full_disk_keeps_what_was_committed(ledger: Ledger) -> None:
    ledger.claim("kept", "h", 0, {}, Owner.from_this_process())
    pages = ledger.query("PRAGMA page_count")[0]["page_count"]
    ledger.query(f"PRAGMA max_page_count={pages}")
    with pytest.raises(LedgerError, match="Free some space"):
        for i in range(200):
            ledger.claim(f"t{i}", "h", 0, {"x": "y" * 2000}, Owner.from_this_process())
    ledger.query("PRAGMA max_page_count=100000")
    assert ledger.get_trial("kept") is not None
    assert ledger.claim("after", "h", 0, {}, Owner.from_this_process()) == "mine"


def test_a_folder_that_cannot_be_written() -> None:
    with open_folder() as folder:
        folder.chmod(0o555)
        with unprivileged(), pytest.raises(ConfigError, match="writable"):
            Ledger(folder / "out" / "ledger.sqlite")
        folder.chmod(0o755)
