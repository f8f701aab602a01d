"""Read runs and artifacts from an MLflow store.

MLflow creates an object for each parameter, tag and metric: half a million for 5,000 trials. Of a
SQLite store with known columns, the tables are read directly; every other store is read through
MLflow's client.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from reports.errors import ReportError
from reports.uri import redact_uri

PREFIX = "sqlite:///"
PARENT = "mlflow.parentRunId"
OLDEST_FIRST = "attributes.start_time ASC"
PAGE = 1000  # runs that MLflow is asked for at once
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}
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
class ChildRun:
    """A trial's run: tags, parameters, and the last value of each metric."""

    run_id: str
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def open_client(tracking_uri: str) -> Any:
    """Open a quiet client of an existing store.

    Raises:
        ReportError: the SQLite file does not exist or belongs to another program, where MLflow
            would create its tables.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    path = tracking_uri.partition("?")[0]
    if path.startswith(PREFIX):
        _check_file(Path(path.removeprefix(PREFIX)), redact_uri(tracking_uri))
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking_uri)


def _check_file(path: Path, redacted_uri: str) -> None:
    if not path.is_file():
        raise ReportError(f"{redacted_uri}: there is no such file. Name an MLflow store.")
    sql = "SELECT count(*) FROM sqlite_master WHERE name='experiments'"
    try:
        with _connect_read_only(path, "immutable=1") as connection:  # without a lock
            (count,) = connection.execute(sql).fetchone()
    except sqlite3.DatabaseError:
        return  # damaged, or written just now: MLflow tells which
    if not count:
        raise ReportError(f"{redacted_uri} has no table of MLflow. Name an MLflow store.")


@contextlib.contextmanager
def _connect_read_only(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    uri = f"file:{quote(str(path.absolute()))}?{mode}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        yield connection


def load_artifact(client: Any, run_id: str, path: str) -> bytes:
    """Read a file that was logged with a run.

    Raises:
        mlflow.exceptions.MlflowException: there is no such file, or the store does not answer.
        OSError: likewise.
    """
    with tempfile.TemporaryDirectory() as folder:
        return Path(client.download_artifacts(run_id, path, folder)).read_bytes()


def has_artifact(client: Any, run_id: str, path: str) -> bool:
    """Return whether a file was logged with a run."""
    folder = path.rpartition("/")[0] or None
    return path in {file.path for file in client.list_artifacts(run_id, folder)}


def search_runs(client: Any, experiments: list[str], condition: str) -> list[Any]:
    """Return the runs of these experiments that meet a condition, oldest first."""
    search = partial(
        client.search_runs, experiments, condition, max_results=PAGE, order_by=[OLDEST_FIRST]
    )
    page = search()
    runs = [*page]
    while page.token:
        page = search(page_token=page.token)
        runs += page
    return runs


def find_child_runs(
    client: Any, tracking_uri: str, experiment_id: str, parent: str
) -> list[ChildRun]:
    """Return the runs below `parent` that are not deleted, oldest first."""
    if tracking_uri.startswith(PREFIX) and "?" not in tracking_uri:
        path = Path(tracking_uri.removeprefix(PREFIX))
        children = read_tables(path, experiment_id, parent)
        if children is not None:
            return children
    runs = search_runs(client, [experiment_id], f"tags.`{PARENT}` = '{parent}'")
    return [
        ChildRun(
            run.info.run_id, dict(run.data.tags), dict(run.data.params), dict(run.data.metrics)
        )
        for run in runs
    ]


def read_tables(path: Path, experiment_id: str, parent: str) -> list[ChildRun] | None:
    """Return the same from the SQLite file, or None if it has other columns."""
    which = (PARENT, parent, experiment_id)
    try:
        with _connect_read_only(path, "mode=ro") as connection:
            connection.execute("BEGIN")  # one state of the store, whoever writes to it
            for table, columns in COLUMNS.items():
                names = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
                if not columns <= names:
                    return None
            order = f"SELECT runs.run_uuid {BELOW} ORDER BY runs.start_time, runs.run_uuid"
            children = {run_id: ChildRun(run_id) for (run_id,) in connection.execute(order, which)}
            for table in ("tags", "params", "latest_metrics"):
                is_nan = "is_nan" if table == "latest_metrics" else "0"
                rows = connection.execute(
                    f"SELECT run_uuid, key, value, {is_nan} FROM {table} WHERE run_uuid IN "
                    f"(SELECT runs.run_uuid {BELOW})",
                    which,
                )
                for run_id, key, value, no_number in rows:
                    values = getattr(children[run_id], table.removeprefix("latest_"))
                    values[key] = math.nan if no_number else value
            return list(children.values())
    except sqlite3.Error:
        return None
