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


def both(uri: str, monkeypatch: Any) -> tuple[list[store.ChildRun], list[store.ChildRun]]:
    """By the file, and by MLflow."""
    client = open_client(uri)
    (experiment,) = [e for e in client.search_experiments() if e.name != "Default"]
    (parent,) = client.search_runs([experiment.experiment_id], "tags.`ablate.kind` = 'sweep'")
    where = (client, uri, experiment.experiment_id, parent.info.run_id)
    read = store.find_child_runs(*where)
    monkeypatch.setattr(store, "read_tables", lambda *_: None)
    return read, store.find_child_runs(*where)


def test_the_file_and_mlflow_tell_the_same(finished: Any, tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "mlflow.db"
    shutil.copy(finished.folder / "mlflow.db", file)
    uri = f"sqlite:///{file}"
    client, trials = open_client(uri), load_frame(uri, finished.sweep_id).trials
    deleted, odd = trials["run_id"][0], trials["run_id"][1]
    client.delete_run(deleted)
    client.log_metric(odd, "final/strange", math.nan)
    client.log_metric(odd, "final/large", math.inf)
    client.set_tag(odd, "words", "ä\n'")
    read, told = both(uri, monkeypatch)
    assert len(told) == len(trials) - 1 and deleted not in {each.run_id for each in told}
    assert [each.run_id for each in read] == [each.run_id for each in told]
    for one, other in zip(read, told, strict=True):
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
        tables = build_all(frame, frame.recipe)
        texts = [csv_table.to_csv(table) for table in tables]
        texts += [
            format_best_config(frame, "tune"),
            collect_facts(frame),
            list(frame.trials["params"]),
        ]
        reports[layout] = texts
    assert len(reports["now"]) > 5 and reports["before"] == reports["now"]
