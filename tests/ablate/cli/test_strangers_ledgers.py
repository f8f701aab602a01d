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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep."""
    out = tmp_path_factory.mktemp("whole")
    given = specs.spec(seeds=1)
    given["studies"] = {"grid": given["studies"]["grid"]}
    made = dispatch(specs.plan(given), out)
    drain(made)
    made.ledger.close()
    with sqlite3.connect(out / "ledger.sqlite") as db:
        db.execute("PRAGMA journal_mode=DELETE")
    db.close()
    return out


@pytest.fixture
def out(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "out"))


def execute(out: Path, *statements: str) -> None:
    db = sqlite3.connect(out / "ledger.sqlite", isolation_level=None)
    db.execute("PRAGMA ignore_check_constraints=ON")
    for statement in statements:
        db.execute(statement)
    db.close()


def one_sentence(out: Path, capsys: Captured, *words: str) -> int:
    """Run a command; it must not raise, and says no control character and one line of error."""
    code = main([*words, "--out", str(out)])
    said = capsys.readouterr()
    assert code in (0, 1, 2) and "\x1b" not in said.out + said.err
    assert not any(line.startswith("FORGED") for line in (said.out + said.err).splitlines())
    if code == 2:
        assert len(said.err.splitlines()) == 1 and len(said.err) < 3000
    return code


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE trials"],
        ["UPDATE trials SET reason=CAST(x'ff41' AS TEXT)"],
        ["UPDATE trials SET owner='nobody', heartbeat=0"],
        ["UPDATE trials SET config_json='{'"],
        ["PRAGMA user_version=3"],
    ],
)
def test_tables_of_somebody_else(out: Path, capsys: Captured, statements: list[str]) -> None:
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
        {"studies": [3]},
        {"studies": [{"study": "s"}]},
        {"nodes": [{"name": 3}]},
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
