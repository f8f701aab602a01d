"""Opening an MLflow store: quietly, without telemetry, and safely when several come first.

The first use of a fresh SQLite store makes its tables by some 40 migrations, and processes that
do so at once break each other's: the file is therefore made under a lock. MLflow is imported
late: it costs seconds.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from ablate.ledger.sqlite_files import fold_journal, write_ahead
from reports.uri import redacted

if TYPE_CHECKING:
    from mlflow import MlflowClient

FIRST_USE_TIMEOUT = 300.0
PAGE = 1000
KIND = "mlflow.experimentKind"
TRAINING = "custom_model_development"  # as MLflow calls the training of models of one's own
SQLITE = "sqlite:///"
_SQLITE = re.compile(r"sqlite(\+\w+)?://(/(?P<path>[^?]*))?(\?.*)?", re.DOTALL)


def quiet_environment() -> None:
    """Set MLflow to no telemetry, nothing on stdout, and no HTTP retries: the tracker has its own,
    and a request that makes a run and whose answer is lost would make it twice.

    A variable that the user has set stands.
    """
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "GIT_PYTHON_REFRESH": "quiet",
    }.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def sqlite_file(tracking_uri: str) -> Path | None:
    """The file of a `sqlite:///` URI; None for every other store."""
    match = _SQLITE.fullmatch(tracking_uri)
    if match is None:
        return None
    path = Path(match["path"] or "")
    return path.expanduser() if path.parts[:1] == ("~",) else path


def store_key(tracking_uri: str) -> str:
    """The store's name in the ledger, without a password; relative and absolute paths to one
    file agree."""
    path = sqlite_file(tracking_uri)
    return redacted(tracking_uri).rstrip("/") if path is None else SQLITE + str(path.resolve())


def client_uri(tracking_uri: str) -> str:
    """The URI for MLflow's client: a file's path made absolute, its options kept."""
    path = sqlite_file(tracking_uri)
    if path is None:
        return tracking_uri
    _, mark, options = tracking_uri.partition("?")
    return f"{SQLITE}{path.resolve()}{mark}{options}"


def is_damaged(error: BaseException) -> bool:
    """Whether an error says that a SQLite store's file is broken, which waiting does not mend."""
    text = str(error)
    return "database disk image is malformed" in text or "file is not a database" in text


def open_store(tracking_uri: str) -> MlflowClient:
    """A client of an existing or fresh store; the tables are there when it returns."""
    quiet_environment()
    from mlflow import MlflowClient

    path = sqlite_file(tracking_uri)
    if path is None:
        return MlflowClient(tracking_uri=tracking_uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(path.name + ".lock"), timeout=FIRST_USE_TIMEOUT):
        client = MlflowClient(tracking_uri=client_uri(tracking_uri))
        client.search_experiments(max_results=1)  # makes the tables
        # A running `mlflow ui` reads while we write.
        write_ahead(path)
    return client


def experiment_id(client: MlflowClient, tracking_uri: str, name: str) -> str:
    """The experiment called `name`, made if need be; beside a SQLite file lie its artifacts."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        path = sqlite_file(tracking_uri)
        root = None if path is None else (path.resolve().parent / "mlartifacts").as_uri()
        try:
            made = client.create_experiment(name, artifact_location=root, tags={KIND: TRAINING})
            return str(made)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return _told(client, experiment.experiment_id, experiment.tags)


def _told(client: MlflowClient, experiment: str, tags: Mapping[str, str]) -> str:
    """The experiment, its kind said: MLflow opens one whose kind it has to guess in its view for
    generative models. A kind that somebody has chosen stands."""
    known = tags.get(KIND, "")
    if not known or known.endswith("_inferred") or known == "no_inferred_type":
        client.set_experiment_tag(experiment, KIND, TRAINING)
    return str(experiment)


def find_runs(client: MlflowClient, experiment: str, condition: str) -> list[Any]:
    """All active runs of an experiment that fulfil MLflow's filter string, oldest first."""
    runs: list[Any] = []
    token: str | None = None
    while True:
        page = client.search_runs(
            [experiment],
            condition,
            max_results=PAGE,
            order_by=["attributes.start_time ASC"],
            page_token=token,
        )
        runs += page
        token = page.token
        if not token:
            return runs


def set_aside(path: Path) -> Path:
    """Move a SQLite store's files away, a journal's included; where the first of them went.

    Raises:
        OSError: they cannot be moved.
    """
    number = 1
    while (aside := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    with FileLock(path.with_name(path.name + ".lock"), timeout=FIRST_USE_TIMEOUT):
        for suffix in ("", "-wal", "-shm", "-journal"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
    return aside


def settle(tracking_uri: str) -> None:
    """Bring a SQLite store's journal into its file, so that the file alone is the store."""
    path = sqlite_file(tracking_uri)
    if path is not None and path.is_file():
        fold_journal(path)
