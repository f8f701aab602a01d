"""Read runs and artifacts from an MLflow store."""

import logging
import os
import sqlite3
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from trainables.words.databases import NoDatabase, read_header
from trainables.words.errors import ReportError
from trainables.words.secrets import redact_uri

SQLITE_PREFIX = "sqlite:///"
PAGE_SIZE = 1000  # runs that MLflow is asked for at once
# A retry of a request whose answer was lost would create a run twice.
QUIET = {
    "DO_NOT_TRACK": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def silence_mlflow() -> None:
    """Turn off MLflow's telemetry, output and HTTP retries, unless their variables are set."""
    for name, value in QUIET.items():  # MLflow reads its settings from the environment
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def open_client(tracking_uri: str, *, create: bool = False) -> Any:
    """Return a quiet client of an MLflow store.

    A SQLite file that does not exist, or has no tables of MLflow, is a ReportError unless `create`
    is set, because MLflow would create its tables there.
    """
    silence_mlflow()
    path = tracking_uri.partition("?")[0]  # without a query
    if path.startswith(SQLITE_PREFIX) and not create:
        _check_tables(Path(path.removeprefix(SQLITE_PREFIX)), redact_uri(tracking_uri))
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking_uri)


def _check_tables(path: Path, uri: str) -> None:
    """Refuse a SQLite file that does not exist or has no tables of MLflow."""
    try:
        header = read_header(path)
    except NoDatabase as error:
        raise ReportError(f"{uri} is no MLflow store: {error}. Name an MLflow store.") from None
    except sqlite3.DatabaseError:
        return  # the file is damaged or being written: MLflow's own error says which
    if header is None:
        raise ReportError(f"The file of {uri} does not exist. Name an MLflow store.")
    if "experiments" not in header.tables:
        raise ReportError(f"The file of {uri} is no MLflow store. Name an MLflow store.")


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
