"""Which MLflow store is meant, what cannot be one, and what is not touched by asking."""

from __future__ import annotations

import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ablate.cli import doctor
from ablate.cli.main import main
from ablate.ledger.ledger import Ledger
from ablate.tracking.store import Store
from reports.compile import compile_report
from reports.errors import ReportError
from tests.ablate.tracking.store import children, runs
from trainables.errors import ConfigError

WORD = "s3cr3t-w0rd"


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def foreign(path: Path, *, wal: bool = False) -> sqlite3.Connection:
    """Another program's database, which that program holds locked."""
    other = sqlite3.connect(path, isolation_level=None)
    if wal:
        other.execute("PRAGMA journal_mode=WAL")
    other.execute("CREATE TABLE notes(text)")
    other.execute("BEGIN EXCLUSIVE")
    return other


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("sqlite:///", "names no file"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///file:x.db?uri=true", "names no file"),
        ("sqlite:///{tmp}", "no plain file"),
        ("sqlite:////proc/version/x.db", "cannot be written"),
        ("file:{tmp}", "is no MLflow URI"),
        ("{tmp}/mlruns", "is no MLflow URI"),
        ("postgresql://me:" + WORD + "@127.0.0.1:9/db", "No module named 'psycopg'"),
        ("postgresql+nodriver://me:" + WORD + "@h/db", "nodriver"),
        ("bogus://me:" + WORD + "@h", "bogus://me:***@h"),
        ("http://me:" + WORD + "@127.0.0.1:9", "no answer from 127.0.0.1:9"),
        ("http://", "no answer"),
        ("http://me:" + WORD + "@h:port", "http://me:***@h:port"),
        ("", "is no MLflow URI"),
        ("env:ABLATE_NOWHERE", "export ABLATE_NOWHERE=URI"),
        ("env:", "not set"),
    ],
)
def test_what_cannot_be_a_store(tmp_path: Path, given: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        Store(tmp_path / "out", given.format(tmp=tmp_path)).check_usable()
    assert words in str(error.value) and WORD not in str(error.value), error.value
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wal", [False, True])
def test_another_program_s_database_is_only_looked_at(tmp_path: Path, wal: bool) -> None:
    path = tmp_path / "theirs.db"
    holder = foreign(path, wal=wal)
    holder.execute("COMMIT")
    holder.close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    before = listing(tmp_path)
    for store in (
        Store(tmp_path / "out", f"sqlite:///{path}"),
        Store(tmp_path, f"sqlite:///{path}"),
    ):
        with pytest.raises(ConfigError, match="another program's database"):
            store.check_usable()
    with pytest.raises(ConfigError, match="another program"):
        Ledger(path)
    with pytest.raises(ReportError, match="no table of MLflow's"):
        compile_report(f"sqlite:///{path}", "0123456789ab", tmp_path)
    assert listing(tmp_path) == before
    holder.close()


def test_an_mlflow_store_and_a_fresh_file_are_fine(empty_store: Path, tmp_path: Path) -> None:
    Store(tmp_path, f"sqlite:///{empty_store}").check_usable()
    Store(tmp_path / "deep" / "er").check_usable()
    (tmp_path / "mlflow.db").touch()
    Store(tmp_path).check_usable()
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, ""),
        ("env:MINE", " --tracking-uri env:MINE"),
        (f"http://me:{WORD}@h", " --tracking-uri env:ABLATE_TRACKING_URI"),
    ],
)
def test_a_remedy_names_the_store_that_the_run_had(given: str | None, said: str) -> None:
    store = Store(Path("my runs"), given)
    assert store.format_command("ledger replay") == f"`ablate ledger replay --out 'my runs'{said}`"
    assert WORD not in repr(store)


@pytest.mark.parametrize("option", ["--tracking-uri", "--tr"])
def test_a_password_on_the_command_line_is_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "s.yaml", option, f"http://me:{WORD}@h"]) == 2
    said = capsys.readouterr().err
    assert "--tracking-uri env:NAME" in said and WORD not in said


def test_a_mistyped_option_does_not_print_its_password(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "s.yaml", f"--tracking_uri=http://me:{WORD}@h"])
    said = capsys.readouterr().err
    assert "--tracking_uri=http://me:***@h" in said and WORD not in said


@pytest.mark.slow
def test_a_damaged_store_is_moved_away_and_written_anew(
    sweep: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = sweep.plan(seeds=1, studies=("tune",))
    sweep.finish(trials)
    sweep.track()
    path = tmp_path / "mlflow.db"
    with path.open("r+b") as stream:
        stream.seek(8192)
        stream.write(b"\xff" * (path.stat().st_size // 2))
    finding = doctor.check_mlflow(tmp_path)
    assert not finding.ok and "ove it away" in finding.text
    remedy = shlex.split(finding.text.split("`")[1])
    assert main(remedy[1:]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main([*remedy[1:], "--rebuild"]) == 2
    assert "0.2.0" in capsys.readouterr().err
    for part in tmp_path.glob("mlflow.db*"):
        part.rename(tmp_path / part.name.replace("mlflow", "aside"))
    code = "import sys; from ablate.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *remedy[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert doctor.check_mlflow(tmp_path).ok
    fresh = f"{sweep.uri}?timeout=30"  # under its first name MLflow keeps the damaged one open here
    assert set(children(sweep, fresh)) == set(trials)
    assert len(runs(sweep, fresh)) == len(trials) + 1
