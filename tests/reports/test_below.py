"""Runs read from a SQLite store's file are those that MLflow tells."""

from __future__ import annotations

import math
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from reports import store
from reports.frame import load_frame
from reports.pages import csv_table
from reports.pages.best import format_best_config
from reports.pages.facts import collect_facts
from reports.store import open_client
from reports.tables.build import build_all


def test_the_file_and_mlflow_tell_the_same(finished: Any, tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "mlflow.db"
    shutil.copy(finished.folder / "mlflow.db", file)
    uri = f"sqlite:///{file}"
    client, frame = open_client(uri), load_frame(uri, finished.sweep_id)
    trials, (parent,) = frame.trials, frame.parents
    deleted, odd = trials["run_id"][0], trials["run_id"][1]
    client.delete_run(deleted)
    client.log_metric(odd, "final/strange", math.nan)
    client.log_metric(odd, "final/large", math.inf)
    client.set_tag(odd, "words", "ä\n'")
    read = store.find_child_runs(client, uri, parent.experiment_id, parent.run_id)
    monkeypatch.setattr(store, "read_tables", lambda *_: None)
    answers = store.find_child_runs(client, uri, parent.experiment_id, parent.run_id)
    assert len(answers) == len(trials) - 1 and deleted not in {run.run_id for run in answers}
    assert [run.run_id for run in read] == [run.run_id for run in answers]
    for one, other in zip(read, answers, strict=True):
        assert (one.tags, one.params) == (other.tags, other.params)
        assert one.metrics == pytest.approx(other.metrics, rel=0, abs=0, nan_ok=True)
    assert math.isnan(next(e for e in read if e.run_id == odd).metrics["final/strange"])


def test_a_store_of_another_make_is_mlflow_s_to_read(finished: Any, tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    shutil.copy(finished.folder / "mlflow.db", file)
    assert store.read_tables(file, "1", "nobody") == []
    with sqlite3.connect(file) as connection:
        connection.execute("ALTER TABLE latest_metrics RENAME COLUMN is_nan TO missing")
    assert store.read_tables(file, "1", "nobody") is None
    file.write_bytes(b"no database" * 100)
    assert store.read_tables(file, "1", "nobody") is None
    assert store.read_tables(tmp_path / "absent.db", "1", "nobody") is None
    assert not (tmp_path / "absent.db").exists()


def test_a_store_of_before_gives_the_same_report(finished: Any, tmp_path: Path) -> None:
    """Before, all settings of a trial were parameters of its run; now they lie in a tag."""
    reports = {}
    for layout, statement in (
        ("before", "DELETE FROM tags WHERE key LIKE 'ablate.config%'"),
        ("now", "DELETE FROM params"),
    ):
        file = tmp_path / layout / "mlflow.db"
        file.parent.mkdir()
        shutil.copy(finished.folder / "mlflow.db", file)
        with sqlite3.connect(file) as connection:
            assert connection.execute(statement).rowcount > 20
        connection.close()
        uri = f"sqlite:///{file}"
        frame = load_frame(uri, finished.sweep_id)
        assert all("optimizer.betas" in params for params in frame.trials["params"])
        tables = [csv_table.to_csv(table) for table in build_all(frame, frame.recipe)]
        texts = format_best_config(frame, "tune"), collect_facts(frame)
        reports[layout] = [*tables, *texts, list(frame.trials["params"])]
    assert len(reports["now"]) > 5 and reports["before"] == reports["now"]
