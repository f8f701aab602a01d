"""Read runs and artifacts from an MLflow store."""

import logging
import os
import sqlite3
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainables.words.errors import ReportError
from trainables.words.secrets import redact_uri

SQLITE_PREFIX = "sqlite:///"
PAGE_SIZE = 1000  # runs that MLflow is asked for at once
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}


def open_client(tracking_uri: str) -> Any:
    """Return a client for an MLflow store that exists, and silence messages below a warning.

    A SQLite file that does not exist, or has no tables of MLflow, is a ReportError, because MLflow
    would create its tables there.
    """
    for name, value in QUIET.items():  # MLflow reads its settings from the environment
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    path = tracking_uri.partition("?")[0]  # without a query
    if path.startswith(SQLITE_PREFIX):
        _check_sqlite_file(Path(path.removeprefix(SQLITE_PREFIX)), redact_uri(tracking_uri))
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking_uri)


def _check_sqlite_file(path: Path, redacted_uri: str) -> None:
    """Refuse a SQLite file that does not exist or has no tables of MLflow."""
    if not path.is_file():
        raise ReportError(f"The file of {redacted_uri} does not exist. Name an MLflow store.")
    address = f"file:{quote(str(path.absolute()))}?immutable=1"  # reads without a lock
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.DatabaseError:
        return  # the file is damaged or being written: MLflow's own error says which
    if "experiments" not in tables:
        raise ReportError(f"The file of {redacted_uri} is no MLflow store. Name an MLflow store.")


def load_artifact(client: Any, run_id: str, path: str) -> bytes:
    """Read a file that was logged with a run."""
    with tempfile.TemporaryDirectory() as folder:
        return Path(client.download_artifacts(run_id, path, folder)).read_bytes()


def search_runs(client: Any, experiments: list[str], condition: str) -> list[Any]:
    """Return all runs of some experiments that meet MLflow's filter `condition`, oldest first."""
    order = ["attributes.start_time ASC"]
    limits = {"max_results": PAGE_SIZE, "order_by": order}
    search = partial(client.search_runs, experiments, condition, **limits)
    page = search()
    runs = [*page]
    while page.token:
        page = search(page_token=page.token)
        runs += page
    return runs
