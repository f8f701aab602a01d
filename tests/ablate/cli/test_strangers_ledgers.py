"""Output folders that a stranger left: each command says one sentence, and waits for nothing."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ablate.cli.main import main
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain

Captured = pytest.CaptureFixture[str]


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
    if words[:2] != ("ledger", "export"):  # a field of a CSV file may have several lines
        assert not any(line.startswith("FORGED") for line in (said.out + said.err).splitlines())
    if code == 2:
        assert len(said.err.splitlines()) == 1 and len(said.err) < 3000
    return code


NO_UTF8 = "CAST(x'ff41' AS TEXT)"
DEEP = f"replace(hex(zeroblob({50_000})), '00', '[')"
HUGE = "replace(hex(zeroblob(1000000)), '00', 'yy')"
DAMAGE = {  # by name: statements that damage a ledger
    "no table of trials": ["DROP TABLE trials"],
    "no table of cells": ["DROP TABLE cells"],
    "a view for a table": [
        "CREATE TABLE other AS SELECT * FROM epochs",
        "DROP TABLE epochs",
        "CREATE VIEW epochs AS SELECT * FROM other",
    ],
    "a column gone": ["DROP INDEX IF EXISTS cells_by_trial", "ALTER TABLE trials RENAME seed TO x"],
    "an unknown version": ["PRAGMA user_version=1000"],
    "another program's": ["PRAGMA application_id=7"],
    "no UTF-8 in a reason": [f"UPDATE trials SET reason={NO_UTF8}"],
    "no UTF-8 in a configuration": [f"UPDATE trials SET config_json={NO_UTF8}"],
    "no UTF-8 in a name": [f"UPDATE OR IGNORE cells SET study={NO_UTF8}"],
    "an owner without process": ["UPDATE trials SET owner='nobody', heartbeat=0"],
    "a text as heartbeat": ["UPDATE trials SET heartbeat='soon'"],
    "a blob as configuration": ["UPDATE trials SET config_json=x'fffe00'"],
    "a number as configuration": ["UPDATE trials SET config_json=3"],
    "no JSON": ["UPDATE trials SET config_json='{'"],
    "JSON of a list": ["UPDATE trials SET config_json='[1, 2]'"],
    "JSON of nothing": ["UPDATE trials SET config_json='null'"],
    "JSON of an empty object": ["UPDATE trials SET config_json='{}'"],
    "JSON nested deeply": [f"UPDATE trials SET config_json={DEEP}"],
    "a lone surrogate": ["UPDATE trials SET config_json='{\"\\ud800\": 1}'"],
    "a number of 400 digits": [
        f"UPDATE evaluations SET metrics_json='{{\"map_at_r\": 1{'0' * 400}}}'"
    ],
    "a text as metric": ['UPDATE evaluations SET metrics_json=\'{"map_at_r": "good"}\''],
    "metrics in metrics": ['UPDATE evaluations SET metrics_json=\'{"map_at_r": {"a": [1]}}\''],
    "NaN as metric": ["UPDATE evaluations SET metrics_json='{\"map_at_r\": NaN}'"],
    "no number as metric": ["UPDATE evaluations SET metrics_json='{\"map_at_r\": null}'"],
    "a list of epochs' metrics": ["UPDATE epochs SET metrics_json='[]'"],
    "a status of another kind": ["UPDATE trials SET status='lost'"],
    "a blob as status": ["UPDATE trials SET status=x'00ff'"],
    "a negative seed": ["UPDATE trials SET seed=-5"],
    "a seed beyond 64 bits": ["UPDATE trials SET seed=9e300"],
    "an infinite time": ["UPDATE trials SET seconds=9e999"],
    "a text as number of epochs": ["UPDATE trials SET epochs='many'"],
    "a text of 2 MB": [f"UPDATE trials SET reason={HUGE}"],
    "control characters": ["UPDATE trials SET reason=char(27) || '[31m' || char(10) || 'FORGED'"],
    "a name with a path": ["UPDATE sweeps SET name='../../x'"],
    "a spec of another kind": ["UPDATE sweeps SET spec_json='{\"studies\": [1]}'"],
    "a spec without designs": ['UPDATE sweeps SET spec_json=\'{"studies": {"grid": {}}}\''],
    "an unknown design": [
        "UPDATE sweeps SET spec_json=replace(spec_json, '\"grid\"', '\"unknown\"')"
    ],
    "coordinates in a list": ["UPDATE cells SET coords_json='[[1, [2]]]'"],
    "a cell without trial": ["UPDATE cells SET trial_id='nothing'"],
    "trials that are gone": ["DELETE FROM trials"],
    "sweeps that are gone": ["DELETE FROM sweeps"],
}
HARMLESS = {  # an earlier version's, or a name, a text or a number that a ledger may hold
    *("NaN as metric", "no number as metric", "a list of epochs' metrics"),
    *("a text of 2 MB", "control characters", "a name with a path"),
    *("a spec without designs", "an unknown design", "a cell without trial"),
    *("trials that are gone", "sweeps that are gone"),
}
READERS = (
    *(["status"], ["status", "--json"], ["trials"], ["trials", "--params"], ["best"]),
    *(["best", "small", "grid"], ["logs", "TRIAL"], ["explain", "TRIAL"], ["prune"]),
    *(["ledger", "ls"], ["ledger", "show", "TRIAL"], ["ledger", "export"]),
)


def read_all(out: Path, capsys: Captured, readers: Sequence[list[str]]) -> list[int]:
    (trial, *_) = sorted(path.name for path in (out / "trials").iterdir())
    return [
        one_sentence(out, capsys, *(word.replace("TRIAL", trial) for word in words))
        for words in readers
    ]


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_ledger_is_one_sentence(out: Path, capsys: Captured, kind: str) -> None:
    execute(out, *DAMAGE[kind])
    number = [*DAMAGE].index(kind)
    codes = read_all(out, capsys, [["ledger", "export"], READERS[number % len(READERS)]])
    assert 2 in codes or kind in HARMLESS | {"a spec of another kind"}, codes


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGE)
def test_every_command_reads_a_damaged_ledger(out: Path, capsys: Captured, kind: str) -> None:
    execute(out, *DAMAGE[kind])
    codes = read_all(out, capsys, READERS)
    assert 2 in codes or kind in HARMLESS, codes


def test_the_version_before_is_read(out: Path, capsys: Captured) -> None:
    execute(out, "PRAGMA user_version=3")
    assert read_all(out, capsys, READERS) == [0] * len(READERS)


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
