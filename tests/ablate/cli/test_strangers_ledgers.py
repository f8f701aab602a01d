"""Output folders that a stranger left: each command says one sentence, and waits for nothing."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ablate.cli.main import main
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain

Captured = pytest.CaptureFixture[str]
LOOKS = (["status"], ["trials"], ["ledger"], ["ledger", "export"], ["prune"])
TABLES = ("trials", "epochs", "evaluations", "sweeps", "cells")
VALUES: dict[str, object] = {
    "bytes": b"\xff\x00",
    "escape": "\x1b[31mx\nFORGED",
    "number": -5,
    "infinite": 1e999,
    "large": "x" * 5000,
}
JSONS: dict[str, object] = {
    "bytes": b"\xff",
    "none": "{",
    "deep": "[" * 10**5,
    "digits": "9" * 10**4,
    "list": "[]",
    "text": '{"training": 3, "studies": 3, "objective": 3, "map_at_r": "x"}',
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep; its ledger's columns take any value, as those of a stranger may."""
    out = tmp_path_factory.mktemp("whole")
    given = specs.spec(seeds=1)
    given["studies"] = {"grid": given["studies"]["grid"]}
    made = dispatch(specs.plan(given), out)
    drain(made)
    made.ledger.close()
    with sqlite3.connect(out / "ledger.sqlite", isolation_level=None) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("PRAGMA writable_schema=ON")
        for kind in ("TEXT", "INTEGER", "REAL", "NOT NULL"):
            db.execute(
                "UPDATE sqlite_master SET sql=replace(sql, ?, '') WHERE type='table' AND "
                "instr(sql, 'WITHOUT ROWID')=0",
                [f" {kind}"],
            )
        db.execute("PRAGMA writable_schema=OFF")
    db.close()
    return out


@pytest.fixture
def out(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "out"))


def execute(out: Path, *statements: str, values: tuple[object, ...] = ()) -> None:
    db = sqlite3.connect(out / "ledger.sqlite", isolation_level=None)
    db.execute("PRAGMA ignore_check_constraints=ON")
    for statement in statements:
        db.execute(statement, values)
    db.close()


def columns(out: Path, table: str) -> list[str]:
    db = sqlite3.connect(out / "ledger.sqlite")
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    db.close()
    return names


def one_sentence(out: Path, capsys: Captured, *words: str) -> int:
    """Run a command; it must not raise, and says no control character and one line of error."""
    code = main([*words, "--out", str(out)])
    said = capsys.readouterr()
    assert code in (0, 1, 2) and "\x1b" not in said.out + said.err
    assert not any(line.startswith("FORGED") for line in (said.out + said.err).splitlines())
    if code == 2:
        assert len(said.err.splitlines()) == 1 and len(said.err) < 3000
    return code


@pytest.mark.parametrize("table", TABLES)
def test_any_value_in_any_column(out: Path, capsys: Captured, table: str) -> None:
    before = (out / "ledger.sqlite").read_bytes()
    for number, column in enumerate(columns(out, table)):
        kinds = JSONS if column.endswith("_json") else VALUES
        for place, (name, value) in enumerate(kinds.items()):
            (out / "ledger.sqlite").write_bytes(before)
            try:
                execute(out, f"UPDATE {table} SET {column}=?", values=(value,))
            except sqlite3.IntegrityError:
                continue  # two rows of one key
            code = one_sentence(out, capsys, *LOOKS[(number + place) % len(LOOKS)])
            if table == "trials" and column in ("config_json", "seed") and name != "number":
                assert one_sentence(out, capsys, "ledger", "export") == 2, (column, name, code)


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE trials"],
        ["ALTER TABLE trials RENAME COLUMN status TO state"],
        ["ALTER TABLE trials ADD COLUMN more AS (zeroblob(900000000)) VIRTUAL"],
        ["DROP TABLE sources", "CREATE VIEW sources AS SELECT 1 AS source, 2 AS components_json"],
        ["CREATE TRIGGER t AFTER UPDATE ON trials BEGIN DELETE FROM sweeps; END"],
        ["UPDATE trials SET reason=CAST(x'ff41' AS TEXT)"],
        ["UPDATE trials SET reason=CAST(zeroblob(68000000) AS TEXT)"],
        ["UPDATE trials SET owner='nobody', heartbeat=0"],
        ["PRAGMA user_version=3"],
    ],
)
def test_tables_of_somebody_else(out: Path, capsys: Captured, statements: list[str]) -> None:
    """Also a view that never ends, or a value of gigabytes."""
    execute(out, *statements)
    codes = [one_sentence(out, capsys, *words) for words in LOOKS]
    assert 2 in codes or statements == ["PRAGMA user_version=3"]


def driver(**changes: Any) -> str:
    study = {"study": "s", "size": 1, "known": 1, "done": 0, "running": 1, "failed": 0}
    told = {
        "owner": "elsewhere/1/1.00",
        "sweep_id": "x",
        "name": "small",
        "began": time.time(),
        "at": time.time() + 60,
        "slots": 2,
        "trials": [],
        "studies": [study | {"best": None, "eta": None, "note": ""}],
        "stopping": False,
        "nodes": [],
    }
    return json.dumps(told | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"slots": "x"},
        {"slots": float("inf")},
        {"began": float("nan")},
        {"at": 1e308},
        {"studies": [3]},
        {"studies": [{"study": "s"}]},
        {"nodes": [{"name": 3}]},
        {"name": "\x1b[31mx\nFORGED"},
        {"owner": "host/1/nan"},
        {"sweep_id": "unknown"},
    ],
)
def test_a_driver_that_tells_nonsense_is_none(
    out: Path, capsys: Captured, changes: dict[str, Any]
) -> None:
    db = sqlite3.connect(out / "ledger.sqlite")
    (sweep_id,) = db.execute("SELECT sweep_id FROM sweeps").fetchone()
    db.close()
    (out / "drivers").mkdir()
    (out / "drivers" / "a.json").write_text(driver(**({"sweep_id": sweep_id} | changes)))
    assert main(["status", "--out", str(out)]) == 0
    assert ": not running" in capsys.readouterr().out
    (out / "drivers" / "a.json").write_text(driver(sweep_id=sweep_id))
    assert main(["status", "--out", str(out)]) == 0
    assert ": running for" in capsys.readouterr().out


def _fifo(path: Path) -> None:
    os.mkfifo(path)


KINDS: dict[str, Callable[[Path], None]] = {
    "fifo": _fifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path),
    "folder": Path.mkdir,
}


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_none(out: Path, capsys: Captured, kind: str) -> None:
    """Nothing is waited for: the test itself would hang."""
    (trial, *_) = sorted(path.name for path in (out / "trials").iterdir())
    log = out / "trials" / trial / "trial.log"
    log.unlink()
    for path in (log, out / "drivers" / "a.json", out / "reports" / "a" / "report.html"):
        path.parent.mkdir(parents=True, exist_ok=True)
        KINDS[kind](path)
    assert one_sentence(out, capsys, "status") == 0
    assert one_sentence(out, capsys, "stop", "--wait", "0") == 2
    assert one_sentence(out, capsys, "logs", trial) == 2
    one_sentence(out, capsys, "prune", "--yes")
    (out / "ledger.sqlite").unlink()
    KINDS[kind](out / "ledger.sqlite")
    assert one_sentence(out, capsys, "status") == 2


def test_a_request_to_stop_follows_no_link(out: Path, tmp_path: Path) -> None:
    db = sqlite3.connect(out / "ledger.sqlite")
    (sweep_id,) = db.execute("SELECT sweep_id FROM sweeps").fetchone()
    db.close()
    (out / "drivers").mkdir()
    (out / "drivers" / "a.json").write_text(driver(sweep_id=sweep_id))
    (out / "drivers" / "a.stop").symlink_to(tmp_path / "victim")
    main(["stop", "--wait", "0", "--out", str(out)])
    assert not (tmp_path / "victim").exists()


def test_logs_are_read_by_lines(out: Path, capsys: Captured) -> None:
    (trial, *_) = sorted(path.name for path in (out / "trials").iterdir())
    lines = ["first", "sécond, of more than a block", "", "\x1b[31mlast"]
    for text in ("\n".join(lines), "\n".join(lines) + "\n"):
        (out / "trials" / trial / "trial.log").write_text(text, encoding="utf-8")
        assert main(["logs", trial, "--out", str(out)]) == 0
        shown = [line.replace("\x1b", "\\x1b") for line in lines]
        assert capsys.readouterr().out == "\n".join(shown) + "\n"
