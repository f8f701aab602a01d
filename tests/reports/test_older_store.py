"""A store of an older version gives the same report."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from reports.best import format_best_config
from reports.frame import load_frame
from reports.pages import table_files
from reports.pages.facts import collect_facts
from reports.tables.build import build_all


@pytest.mark.slow
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
        tables = [table_files.to_csv(table) for table in build_all(frame, frame.recipe)]
        texts = format_best_config(frame, "tune"), collect_facts(frame)
        reports[layout] = [*tables, *texts, list(frame.trials["params"])]
    assert len(reports["now"]) > 5 and reports["before"] == reports["now"]
