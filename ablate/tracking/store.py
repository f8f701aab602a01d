"""The MLflow store of a run: how a command names it, whether it can be one, and opening it.

A store is named by its URI, or by `env:NAME`, the environment variable that holds the URI. A
password in it reaches MLflow and nothing else. MLflow is imported late: it costs seconds.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import socket
import sqlite3
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from filelock import FileLock

from ablate.ledger.sqlite_files import fold_journal, read_header, write_ahead
from reports.store import QUIET
from reports.uri import HIDDEN, has_secret, redact_text, redact_uri
from trainables.errors import ConfigError

if TYPE_CHECKING:
    from mlflow import MlflowClient

OPTION = "--tracking-uri"
ENV = "env:"
VARIABLE = "ABLATE_TRACKING_URI"
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
CREDENTIALS = {f"MLFLOW_TRACKING_{name}" for name in ("URI", "USERNAME", "PASSWORD", "TOKEN")}
CREDENTIALS |= {VARIABLE}
SECONDS = 5.0
OWN = {"experiments", "runs", "alembic_version", "registered_models"}  # some of MLflow's tables
EXPECTED = (
    "is no MLflow URI (sqlite:///FILE, http, https, postgresql, …); without it runs are written to "
    "SQLite in --out"
)
FIRST_USE_TIMEOUT = 300.0
# Without it MLflow opens an experiment in its view for generative models.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
SQLITE = "sqlite:///"
_SQLITE = re.compile(r"sqlite(\+\w+)?://(/(?P<path>[^?]*))?(\?.*)?", re.DOTALL)


@dataclass(frozen=True)
class Store:
    """The MLflow store of a run.

    given: what `--tracking-uri` says; None: SQLite in `out`.
    """

    out: Path
    given: str | None = field(default=None, repr=False)

    @property
    def uri(self) -> str:
        """The URI that MLflow gets; not to be shown.

        Raises:
            ConfigError: the variable that is to hold it is not set.
        """
        if self.given is None:
            return f"sqlite:///{(self.out / 'mlflow.db').resolve()}"
        if not self.given.startswith(ENV):
            return self.given
        name = self.given.removeprefix(ENV)
        if uri := os.environ.get(name, ""):
            return uri
        raise ConfigError(
            OPTION,
            f"{self.given!r} names an environment variable that is not set: export "
            f"{name or 'NAME'}=URI, or name the store itself",
        )

    @property
    def redacted_uri(self) -> str:
        return redact_uri(self.uri)

    def format_command(self, words: str) -> str:
        """Return `ablate WORDS` for this store as a user would type it, without a password."""
        parts = ["ablate", *words.split(), "--out", str(self.out)]
        if self.given is not None:
            parts += [OPTION, f"{ENV}{VARIABLE}" if has_secret(self.given) else self.given]
        return f"`{shlex.join(parts)}`"

    def check_usable(self, *, writes: bool = True) -> None:
        """Check that MLflow can use it, as far as that can be told before it is opened.

        Args:
            writes: False for a plan, which may look at a store that it could not write.

        Raises:
            ConfigError: it cannot be one.
        """
        path = find_sqlite_file(self.uri)
        if path is None:
            self._check_server()
        elif path.name in ("", ".", ":memory:") or str(path).startswith("file:"):
            raise ConfigError(
                OPTION,
                f"{self.redacted_uri!r} names no file. Write sqlite:///FILE, with three slashes "
                "before a relative path and four before an absolute one.",
            )
        elif self.given is None and path != (self.out / "mlflow.db").resolve():
            raise ConfigError("--out", f"{str(self.out)!r} has a ?: rename the folder")
        elif fault := self._find_file_fault(path, writes=writes):
            raise ConfigError(str(path), fault)

    def _check_server(self) -> None:
        """Check that a server answers, and that the driver of its database is installed."""
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import SQLAlchemyError

        uri, shown = self.uri, self.redacted_uri
        kind, separator, _ = uri.partition("://")
        kind = kind.partition("+")[0]
        if uri == "databricks" or uri.startswith("databricks:"):
            return  # a profile
        if not separator or kind not in PORTS:
            raise ConfigError(OPTION, f"{shown!r} {EXPECTED}")
        try:
            parts = urlsplit(uri)
            if kind not in ("http", "https"):
                make_url(uri).get_dialect().import_dbapi()
            if parts.hostname:  # otherwise a database's socket, or its driver's own way
                address = parts.hostname, parts.port or PORTS[kind]
                socket.create_connection(address, SECONDS).close()
        except (ImportError, SQLAlchemyError, OSError, ValueError) as error:
            reason = redact_text(str(error), uri).partition("\n")[0]
            raise ConfigError(
                OPTION,
                f"{shown} cannot be used ({reason}): start the server, install the driver of its "
                f"database, or leave the option out, and {self.format_command('ledger replay')} "
                "writes a finished sweep to it later",
            ) from None

    def _find_file_fault(self, path: Path, *, writes: bool) -> str:
        """Return why a SQLite file cannot be the store, and what to do; empty if it can."""
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not folder.is_dir() or (writes and not os.access(folder, os.W_OK)):
            return f"a file below {folder} cannot be written: give another"
        if path.exists() and not (path.is_file() and (not writes or os.access(path, os.W_OK))):
            return "it is no plain file, or cannot be written: give another"
        try:
            names = _list_tables(path)
        except sqlite3.OperationalError as error:
            return f"it cannot be read now ({error}): find out which program holds it"
        except (ValueError, sqlite3.DatabaseError) as error:
            return (
                f"it is damaged ({error}): move it away with the files {path.name}-* beside it, "
                f"and {self.format_command('ledger replay')} writes it anew"
            )
        if names and not names & OWN:
            tables = ", ".join(sorted(names)[:3])
            return f"it is another program's database (tables {tables}): give another"
        return ""


def build_public_environment(uri: str | None = None) -> dict[str, str]:
    """Return this process's environment without what opens an MLflow store.

    For processes that do not write to MLflow: every process of the same user can read their
    environment in /proc, and Ray shows it to every trial.

    Args:
        uri: the store of this run. A variable that holds this URI, its password, or another URI
            with the same password is left out whatever its name is.
    """

    def opens_store(value: str) -> bool:
        shown = value if uri is None else redact_text(value, uri)
        return shown != value and (shown == HIDDEN or has_secret(value))

    return {
        name: value
        for name, value in os.environ.items()
        if name not in CREDENTIALS and not opens_store(value)
    }


def _list_tables(path: Path) -> frozenset[str]:
    """Return the tables of a database that may be written meanwhile."""
    try:
        header = read_header(path)
    except sqlite3.DatabaseError:
        if path.with_name(f"{path.name}-journal").exists():
            return frozenset()  # a transaction under way or broken off: opening it rolls back
        header = read_header(path, locked=True)
    return header.tables if header else frozenset()


def silence_mlflow() -> None:
    """Set MLflow to no telemetry, nothing on stdout, and no HTTP retries, which would make a run
    twice. A variable that the user has set stands."""
    for name, value in {
        **QUIET,
        "DO_NOT_TRACK": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    }.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def find_sqlite_file(tracking_uri: str) -> Path | None:
    """Return the file of a `sqlite:///` URI; None for every other store."""
    match = _SQLITE.fullmatch(tracking_uri)
    if match is None:
        return None
    path = Path(match["path"] or "")
    return path.expanduser() if path.parts[:1] == ("~",) else path


def store_key(tracking_uri: str) -> str:
    """Return the store's name in the ledger: without a password, a file by its absolute path."""
    path = find_sqlite_file(tracking_uri)
    return redact_uri(tracking_uri).rstrip("/") if path is None else SQLITE + str(path.resolve())


def build_client_uri(tracking_uri: str) -> str:
    """Return the URI for MLflow's client: a file's path made absolute, its options kept."""
    path, (_, mark, options) = find_sqlite_file(tracking_uri), tracking_uri.partition("?")
    return tracking_uri if path is None else f"{SQLITE}{path.resolve()}{mark}{options}"


def open_store(tracking_uri: str) -> MlflowClient:
    """Return a client of an existing or fresh store, whose tables are then there."""
    silence_mlflow()
    from mlflow import MlflowClient

    path = find_sqlite_file(tracking_uri)
    if path is None:
        return MlflowClient(tracking_uri=tracking_uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The first use makes the tables by 40 migrations, which processes would break for each other.
    with FileLock(path.with_name(path.name + ".lock"), timeout=FIRST_USE_TIMEOUT):
        client = MlflowClient(tracking_uri=build_client_uri(tracking_uri))
        client.search_experiments(max_results=1)
        write_ahead(path)  # a running `mlflow ui` reads while we write
    return client


def get_or_create_experiment(client: MlflowClient, tracking_uri: str, name: str) -> str:
    """Return the id of an experiment, made if need be; beside a SQLite file lie its artifacts."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        path = find_sqlite_file(tracking_uri)
        root = None if path is None else (path.resolve().parent / "mlartifacts").as_uri()
        try:
            return str(client.create_experiment(name, root, tags=EXPERIMENT_TAGS))
        except MlflowException:  # another process has just made it
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


def checkpoint_journal(tracking_uri: str) -> None:
    """Bring a SQLite store's journal into its file, so that the file alone is the store."""
    path = find_sqlite_file(tracking_uri)
    if path is not None and path.is_file():
        fold_journal(path)


def format_command_line() -> str:
    """Return this process's command line as a user would type it again; empty from Python."""
    program = Path(sys.argv[0])
    modules = {"run.py": "python -m ablate.run", "__main__.py": "python -m ablate"}
    start = modules.get(program.name) if program.parent.name == "ablate" else None
    start = "ablate" if program.name == "ablate" else start
    return shlex.join([*start.split(), *sys.argv[1:]]) if start else ""
