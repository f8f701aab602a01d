"""Opening the MLflow store that a report is made of."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from reports.errors import ReportError
from reports.uri import redacted


def open_client(tracking_uri: str) -> Any:
    """A quiet client of an existing store.

    Raises:
        ReportError: a SQLite store whose file is not there, or another program's: opening would
            make an empty one, or MLflow's tables among others.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    prefix, path = "sqlite:///", tracking_uri.partition("?")[0]
    if path.startswith(prefix):
        _check_file(Path(path.removeprefix(prefix)), redacted(tracking_uri))
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking_uri)


def artifact(client: Any, run_id: str, path: str) -> bytes:
    """A file that was logged with a run.

    Raises:
        mlflow.exceptions.MlflowException, OSError: there is none, or the store is away.
    """
    with tempfile.TemporaryDirectory() as folder:
        return Path(client.download_artifacts(run_id, path, folder)).read_bytes()


def has_artifact(client: Any, run_id: str, path: str) -> bool:
    """Whether a file was logged with a run."""
    folder = path.rpartition("/")[0] or None
    return path in {found.path for found in client.list_artifacts(run_id, folder)}


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Thousands of runs are millions of objects, all of which live: the collector, which looks
    through them again and again, is let rest."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _check_file(path: Path, shown: str) -> None:
    if not path.is_file():
        raise ReportError(f"{shown}: found no such file; expected an MLflow store")
    uri = f"file:{quote(str(path.absolute()))}?immutable=1"  # without a lock
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            tables = connection.execute(
                "SELECT count(*) FROM sqlite_master WHERE name='experiments'"
            ).fetchone()
    except sqlite3.DatabaseError:
        return  # damaged, or written just now: MLflow tells which
    if not tables[0]:
        raise ReportError(f"{shown}: found no table of MLflow's; expected an MLflow store")
