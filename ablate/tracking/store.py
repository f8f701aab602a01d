"""Name, check and open the MLflow store of a run.

A store is named by its URI, or by `env:NAME`, the environment variable that holds the URI. A
password in it reaches MLflow and nothing else. MLflow is imported late, because that takes seconds.
"""

import os
import re
import shlex
import socket
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from filelock import FileLock

from ablate.storage import ENV, expand_variable
from reports.store import open_client
from trainables.words.databases import NoDatabase, find_damage, read_header, write_ahead
from trainables.words.errors import ConfigError
from trainables.words.secrets import has_secret, redact_text, redact_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient

OPTION = "--tracking-uri"
VARIABLE = "ABLATE_TRACKING_URI"
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
CONNECT_SECONDS = 5.0
MLFLOW_TABLES = {"experiments", "runs", "alembic_version", "registered_models"}  # some of them
FIRST_USE_TIMEOUT = 300.0  # seconds to wait for another process that makes MLflow's tables
# Without this tag MLflow opens an experiment in its view for generative models.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
SQLITE = "sqlite:///"
_SQLITE = re.compile(r"sqlite(\+\w+)?://(/(?P<path>[^?]*))?(\?.*)?", re.DOTALL)


@dataclass(frozen=True)
class Store:
    """The MLflow store of a run: `option` is --tracking-uri, or None for SQLite in `out`."""

    out: Path
    option: str | None = field(default=None, repr=False)

    @property
    def file(self) -> Path:
        """The SQLite file in --out."""
        return (self.out / "mlflow.db").resolve()

    @property
    def uri(self) -> str:
        """The URI for MLflow, perhaps with a password: --tracking-uri, or else SQLite in --out."""
        if self.option is None:
            return f"sqlite:///{self.file}"
        return expand_variable(self.option, OPTION)

    @property
    def redacted_uri(self) -> str:
        return redact_uri(self.uri)

    def format_command(self, words: str) -> str:
        """Return the command `ablate WORDS` with --out and --tracking-uri, without a password."""
        parts = ["ablate", *words.split(), "--out", str(self.out)]
        if self.option is not None:
            parts += [OPTION, f"{ENV}{VARIABLE}" if has_secret(self.option) else self.option]
        return f"`{shlex.join(parts)}`"

    def check_usable(self, *, writes: bool = True) -> None:
        """Raise ConfigError if MLflow cannot read the store, or write it if `writes`.

        The store is not opened, because that takes seconds.
        """
        path = find_sqlite_file(self.uri)
        if path is None:
            self._check_server()
        elif path.name in ("", ".", ":memory:") or str(path).startswith("file:"):
            raise ConfigError(
                OPTION,
                f"{self.redacted_uri!r} names no file",
                "Write sqlite:///FILE, with three slashes before a relative path and four before "
                "an absolute path",
            )
        elif self.option is None and path != self.file:  # `?` in --out
            raise ConfigError(
                "--out",
                f"{str(self.out)!r} has a question mark, which ends the path in MLflow's URI",
                "Rename the folder",
            )
        else:
            self._check_file(path, writes=writes)

    def _check_server(self) -> None:
        """Raise ConfigError if no server answers, or if its database's driver is not installed."""
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import SQLAlchemyError

        uri, redacted_uri = self.uri, self.redacted_uri
        kind, separator, _ = uri.partition("://")
        kind = kind.partition("+")[0]
        if uri == "databricks" or uri.startswith("databricks:"):
            return  # Databricks finds its server in a profile
        if not separator or kind not in PORTS:
            raise ConfigError(
                OPTION,
                f"{redacted_uri!r} is no MLflow URI (sqlite:///FILE, http, https, postgresql, …)",
                "Leave --tracking-uri out to write runs to SQLite in --out",
            )
        try:
            parts = urlsplit(uri)
            if kind not in ("http", "https"):
                make_url(uri).get_dialect().import_dbapi()
            if parts.hostname:  # otherwise the database is reached by a socket, or by other means
                address = parts.hostname, parts.port or PORTS[kind]
                socket.create_connection(address, CONNECT_SECONDS).close()
        except (ImportError, SQLAlchemyError, OSError, ValueError) as error:
            reason = redact_text(str(error), uri).partition("\n")[0]
            raise ConfigError(
                OPTION,
                f"{redacted_uri} cannot be used ({reason})",
                "Start the server, install the driver of its database, or leave --tracking-uri "
                "out and write the finished sweep later to this store by "
                f"{self.format_command('ledger replay')}",
            ) from None

    def _check_file(self, path: Path, *, writes: bool) -> None:
        """Raise ConfigError if `path` cannot be MLflow's SQLite file."""
        # the nearest folder above the file that exists
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        existing = [place for place in (folder, path) if writes and place.exists()]
        read_only = [str(place) for place in existing if not os.access(place, os.W_OK)]
        if read_only or not folder.is_dir():
            raise ConfigError(
                str(path),
                f"{' and '.join(read_only) or folder} cannot be written",
                "Name another file",
            )
        command = self.format_command("ledger replay")
        try:
            header = read_header(path)
        except NoDatabase as error:
            raise ConfigError(
                str(path),
                str(error),
                f"Name another file, or move what is there away and run {command}",
            ) from None
        except sqlite3.DatabaseError:
            if damage := find_damage(path):  # else another process is writing the file
                raise ConfigError(
                    str(path),
                    f"this file is damaged ({damage})",
                    f"Move it away with the files {path.name}-* beside it, and run {command}",
                ) from None
            return
        tables = header.tables if header else frozenset()
        if tables and not tables & MLFLOW_TABLES:
            names = ", ".join(sorted(tables)[:3])
            raise ConfigError(
                str(path),
                f"this file is another program's database (tables {names})",
                "Name another file",
            )


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


def open_store(tracking_uri: str) -> "MlflowClient":
    """Return an MLflow client of a store, and create the tables in a new SQLite file."""
    path = find_sqlite_file(tracking_uri)
    if path is None:
        return open_client(tracking_uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The first use creates the tables by 40 migrations, which must not run twice at once.
    with FileLock(path.with_name(path.name + ".lock"), timeout=FIRST_USE_TIMEOUT):
        client = open_client(build_client_uri(tracking_uri), create=True)
        client.search_experiments(max_results=1)
        write_ahead(path)  # so that `mlflow ui` can read while this process writes
    return client


def get_or_create_experiment(client: "MlflowClient", tracking_uri: str, name: str) -> str:
    """Return the id of the experiment `name`; create it if missing, restore it if deleted."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        # keep artifacts beside a SQLite file; a server has its own folder for them
        path = find_sqlite_file(tracking_uri)
        root = None if path is None else (path.resolve().parent / "mlartifacts").as_uri()
        try:
            return str(client.create_experiment(name, root, tags=EXPERIMENT_TAGS))
        except MlflowException:  # another process may have just created it
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)
