"""Which MLflow store is meant, what cannot be one, and what is not touched by asking."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from ablate.cli.main import main
from ablate.ledger.ledger import Ledger
from ablate.tracking.store import Store
from reports.compile import compile_report
from trainables.words.errors import ConfigError, ReportError

WORD = "s3cr3t-w0rd"


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///{tmp}", "the path is a folder"),
        ("sqlite:////proc/version/x.db", "cannot be written"),
        ("{tmp}/mlruns", "is no MLflow URI"),
        ("postgresql://me:" + WORD + "@127.0.0.1:9/db", "No module named 'psycopg'"),
        ("bogus://me:" + WORD + "@h", "bogus://me:***@h"),
        ("http://me:" + WORD + "@127.0.0.1:9", "127.0.0.1:9 cannot be used ("),
        ("http://me:" + WORD + "@h:port", "http://me:***@h:port"),
        ("env:ABLATE_NOWHERE", "export ABLATE_NOWHERE=URI"),
    ],
)
def test_what_cannot_be_a_store(tmp_path: Path, uri: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        Store(tmp_path / "out", uri.format(tmp=tmp_path)).check_usable()
    assert words in str(error.value) and WORD not in str(error.value), error.value
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_damaged_store_and_one_that_cannot_be_written(
    empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store = tmp_path / "mlflow.db", Store(tmp_path)
    content = empty_store.read_bytes()
    path.write_bytes(content[:100] + b"x" * 8000 + content[8100:])
    with pytest.raises(ConfigError, match=r"this file is damaged .*mlflow\.db-\*.*ledger replay"):
        store.check_usable()
    path.write_bytes(content)
    for read_only in (path, tmp_path):
        monkeypatch.setattr(os, "access", lambda place, _, read_only=read_only: place != read_only)
        store.check_usable(writes=False)  # `ablate plan`
        with pytest.raises(ConfigError, match="cannot be written"):
            store.check_usable()


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_another_program_s_database_is_only_looked_at(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute(f"PRAGMA journal_mode={mode}")
        holder.execute("CREATE TABLE notes(text)")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        before = listing(tmp_path)
        with pytest.raises(ConfigError, match="another program's database"):
            Store(tmp_path, f"sqlite:///{path}").check_usable()
        with pytest.raises(ConfigError, match="another program"):
            Ledger(path)
        with pytest.raises(ReportError, match="no MLflow store"):
            compile_report(f"sqlite:///{path}", "0123456789ab", tmp_path)
        assert listing(tmp_path) == before


def test_an_mlflow_store_and_a_fresh_file_are_fine(empty_store: Path, tmp_path: Path) -> None:
    Store(tmp_path, f"sqlite:///{empty_store}").check_usable()
    Store(tmp_path / "deep" / "er").check_usable()
    (tmp_path / "mlflow.db").touch()
    Store(tmp_path).check_usable()
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        (None, ""),
        ("env:MINE", " --tracking-uri env:MINE"),
        (f"http://me:{WORD}@h", " --tracking-uri env:ABLATE_TRACKING_URI"),
    ],
)
def test_a_remedy_names_the_store_that_the_run_had(uri: str | None, said: str) -> None:
    store = Store(Path("my runs"), uri)
    assert store.format_command("ledger replay") == f"`ablate ledger replay --out 'my runs'{said}`"
    assert WORD not in repr(store)


def test_a_password_on_the_command_line_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "s.yaml", "--tracking-uri", f"http://me:{WORD}@h"]) == 2
    said = capsys.readouterr().err
    assert "--tracking-uri env:NAME" in said and WORD not in said
