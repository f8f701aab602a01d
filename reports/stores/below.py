"""The trials' runs below a parent run: by MLflow, or faster from its own SQLite file.

MLflow makes an object of each parameter, tag and metric, half a million for 5,000 trials. Of a
SQLite store the four tables they stand in are read as they are, where they have the columns known
here; every other store, and one of another make, is asked through MLflow.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

PREFIX = "sqlite:///"
PARENT = "mlflow.parentRunId"
PAGE = 1000  # runs that MLflow is asked for at once
COLUMNS = {
    "runs": {"run_uuid", "experiment_id", "lifecycle_stage", "start_time"},
    "tags": {"run_uuid", "key", "value"},
    "params": {"run_uuid", "key", "value"},
    "latest_metrics": {"run_uuid", "key", "value", "is_nan"},
}
BELOW = """
    FROM runs JOIN tags AS parent USING (run_uuid)
    WHERE parent.key = ? AND parent.value = ?
      AND runs.experiment_id = ? AND runs.lifecycle_stage = 'active'
"""


@dataclass(frozen=True)
class Child:
    """A trial's run: its tags and parameters, and the last value of each metric."""

    run_id: str
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def runs_below(client: Any, tracking_uri: str, experiment_id: str, parent: str) -> list[Child]:
    """The runs below `parent` that nobody has deleted, the oldest first."""
    found = None
    if tracking_uri.startswith(PREFIX) and "?" not in tracking_uri:
        found = of_file(Path(tracking_uri.removeprefix(PREFIX)), experiment_id, parent)
    if found is not None:
        return found
    runs = search(client, [experiment_id], f"tags.`{PARENT}` = '{parent}'")
    return [
        Child(run.info.run_id, dict(run.data.tags), dict(run.data.params), dict(run.data.metrics))
        for run in runs
    ]


def search(client: Any, experiments: list[str], condition: str) -> list[Any]:
    """MLflow's runs of these experiments that meet a condition, the oldest first."""
    runs: list[Any] = []
    token: str | None = None
    while True:
        page = client.search_runs(
            experiments,
            condition,
            max_results=PAGE,
            page_token=token,
            order_by=["attributes.start_time ASC"],
        )
        runs += page
        token = page.token
        if not token:
            return runs


def of_file(path: Path, experiment_id: str, parent: str) -> list[Child] | None:
    """The same from the file; None where it cannot be read so, and MLflow is to tell why."""
    try:
        with contextlib.closing(_opened(path)) as connection:
            return _read(connection, (PARENT, parent, experiment_id))
    except sqlite3.Error:
        return None


def _opened(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def _read(connection: sqlite3.Connection, which: tuple[str, str, str]) -> list[Child] | None:
    connection.execute("BEGIN")  # one state of the store, whoever writes to it
    for table, columns in COLUMNS.items():
        known = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if not columns <= known:
            return None
    order = connection.execute(
        f"SELECT runs.run_uuid {BELOW} ORDER BY runs.start_time, runs.run_uuid", which
    )
    found = {run_id: Child(run_id) for (run_id,) in order}

    def rows(table: str, columns: str) -> Iterator[Any]:
        return connection.execute(
            f"SELECT run_uuid, key, {columns} FROM {table} "
            f"WHERE run_uuid IN (SELECT runs.run_uuid {BELOW})",
            which,
        )

    for run_id, key, value in rows("tags", "value"):
        found[run_id].tags[key] = value
    for run_id, key, value in rows("params", "value"):
        found[run_id].params[key] = value
    for run_id, key, value, nan in rows("latest_metrics", "value, is_nan"):
        found[run_id].metrics[key] = math.nan if nan else value
    return list(found.values())
