"""Which MLflow store is meant, how a command names it, and whether it can be one.

A store is named by its URI, or by `env:NAME`, the environment variable that holds the URI. A
password in it reaches MLflow and nothing else: see `reports.uri`.
"""

from __future__ import annotations

import os
import shlex
import socket
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from ablate.ledger.sqlite_files import NoDatabase, damage, head
from ablate.tracking.store import sqlite_file
from reports.uri import HIDDEN, has_secret, redacted, scrubbed
from trainables.errors import ConfigError

OPTION = "--tracking-uri"
ENV = "env:"
VARIABLE = "ABLATE_TRACKING_URI"
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
CREDENTIALS = {
    VARIABLE,
    "MLFLOW_TRACKING_URI",
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
}
SECONDS = 5.0
OWN = {"experiments", "runs", "alembic_version", "registered_models"}  # some of MLflow's tables
EXPECTED = "an MLflow URI: sqlite:///FILE, http, https, postgresql, …"
LEAVE = "Leave it out for SQLite in --out"


class DamagedStore(ConfigError):
    """A SQLite store's file is broken, or was never one."""


@dataclass(frozen=True)
class Store:
    """The MLflow store of a run.

    given: what `--tracking-uri` says; None: SQLite in `out`.
    """

    out: Path
    given: str | None = field(default=None, repr=False)

    @property
    def uri(self) -> str:
        """What MLflow gets; not to be shown.

        Raises:
            ConfigError: the variable that is to hold it is not set.
        """
        if self.given is None:
            return f"sqlite:///{(self.out / 'mlflow.db').resolve()}"
        if not self.given.startswith(ENV):
            return self.given
        name = self.given.removeprefix(ENV)
        uri_there = os.environ.get(name, "")
        if not uri_there:
            raise ConfigError(
                OPTION,
                f"{self.given!r}, an environment variable that is not set",
                "an MLflow URI in it",
                f"export {name or 'NAME'}=URI, or name the store itself",
            )
        return uri_there

    @property
    def shown(self) -> str:
        return redacted(self.uri)

    def command(self, words: str) -> str:
        """`ablate WORDS` for this store, as a user would type it; a password stays out of it."""
        parts = ["ablate", *words.split(), "--out", str(self.out)]
        if self.given is not None:
            parts += [OPTION, f"{ENV}{VARIABLE}" if has_secret(self.given) else self.given]
        return f"`{shlex.join(parts)}`"

    def remedy(self) -> str:
        """The command that writes to this store what it lacks."""
        path = sqlite_file(self.uri)
        rebuilt = path is not None and path.is_file() and damage(path)
        return self.command("ledger replay --rebuild" if rebuilt else "ledger replay")

    def check(self, *, writes: bool = True) -> None:
        """That MLflow can use it, as far as that can be told before it is opened: a scheme that
        MLflow knows, its driver, a server that takes connections, a file that is MLflow's.

        A server that goes away later stops nothing: `ablate ledger replay` writes what it missed.

        Args:
            writes: False for a plan, which may look at a store that it could not write.

        Raises:
            ConfigError: it cannot be one.
        """
        uri = self.uri
        path = sqlite_file(uri)
        if path is not None:
            self._check_file(path, writes=writes)
            return
        if uri == "databricks" or uri.startswith("databricks:"):
            return  # a profile
        try:
            parts = urlsplit(uri)
            port = parts.port
        except ValueError:
            raise ConfigError(OPTION, repr(redacted(uri)), "an MLflow URI", "Correct it") from None
        kind = parts.scheme.partition("+")[0]
        if uri and kind in ("", "file"):
            _check_folder(uri)
        elif kind not in PORTS:
            raise ConfigError(OPTION, repr(redacted(uri)), EXPECTED, LEAVE)
        else:
            if kind not in ("http", "https"):
                _check_driver(uri)
            self._check_server(parts, port or PORTS[kind])

    def _check_file(self, path: Path, *, writes: bool) -> None:
        where, this = str(path), ""
        if self.given is not None:
            where, this = OPTION, f"{path}, "
        if path.name in ("", ".", ":memory:") or str(path).startswith("file:"):
            raise ConfigError(
                where,
                f"{self.shown!r}, which names no file",
                "sqlite:///FILE, a file's path",
                "Three slashes before a relative path, four before an absolute one",
            )
        if self.given is None and path != (self.out / "mlflow.db").resolve():
            raise ConfigError("--out", repr(str(self.out)), "a path without ?", "Rename the folder")
        expected = "an MLflow store, or a file that is not there yet"
        there = next(parent for parent in path.absolute().parents if parent.exists())
        if not there.is_dir() or (writes and not os.access(there, os.W_OK)):
            raise ConfigError(
                where,
                f"{this}a file below {there}, which cannot be written",
                "a writable folder",
                "Give another",
            )
        if writes and path.exists() and not os.access(path, os.W_OK):
            raise ConfigError(
                where, f"{this}a file that cannot be written", expected, "Give another"
            )
        if path.exists() and not path.is_file():
            raise ConfigError(where, f"{this}no plain file", expected, "Give another")
        try:
            found = tables(path)
        except sqlite3.OperationalError as error:
            raise ConfigError(
                where,
                f"{this}a database that cannot be read now ({error})",
                expected,
                "Find out which program holds it",
            ) from error
        except (NoDatabase, sqlite3.DatabaseError) as error:
            raise DamagedStore(
                where,
                f"{this}a damaged database ({error})",
                expected,
                f"Move it away, as {self.command('ledger replay --rebuild')} does, which writes "
                "it anew from the ledger",
            ) from error
        if found and not found & OWN:
            some = ", ".join(sorted(found)[:3])
            raise ConfigError(
                where,
                f"{this}another program's database (tables {some})",
                expected,
                "Give another: this one was only looked at",
            )

    def _check_server(self, parts: SplitResult, port: int) -> None:
        host = parts.hostname or ""
        if not host and not parts.scheme.startswith("http"):
            return  # a database's socket, or its driver's own way
        try:
            socket.create_connection((host, port), SECONDS).close()
        except OSError as error:
            raise ConfigError(
                OPTION,
                f"no answer from {host}:{port} ({error.strerror or error})",
                "an MLflow server" if parts.scheme.startswith("http") else "a database server",
                f"Start it, or leave the option out: {self.command('ledger replay')} writes a "
                "finished sweep to it later",
            ) from None


def public_environment(uri: str | None = None) -> dict[str, str]:
    """Return this process's environment without what opens an MLflow store.

    For processes that do not write to MLflow: every process of the same user can read their
    environment in /proc, and Ray shows it to every trial.

    Args:
        uri: the store of this run. A variable that holds this URI, its password, or another URI
            with the same password is left out whatever its name is.
    """

    def is_public(name: str, value: str) -> bool:
        shown = value if uri is None else scrubbed(value, uri)
        return name not in CREDENTIALS and (
            shown == value or not (shown == HIDDEN or has_secret(value))
        )

    return {name: value for name, value in os.environ.items() if is_public(name, value)}


def tables(path: Path) -> frozenset[str]:
    """The tables of a database that may be written meanwhile; without a lock if that is enough."""
    try:
        head_of_file = head(path)
    except sqlite3.DatabaseError:
        if path.with_name(f"{path.name}-journal").exists():
            return frozenset()  # a transaction under way or broken off: opening it rolls back
        head_of_file = head(path, locked=True)
    return frozenset() if head_of_file is None else head_of_file.tables


def _check_folder(uri: str) -> None:
    if os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() in ("true", "1"):
        return
    raise ConfigError(
        OPTION,
        f"{uri!r}, a folder, in which MLflow keeps no runs any more",
        "sqlite:///FILE or a server",
        LEAVE,
    )


def _check_driver(uri: str) -> None:
    """That the database's driver is installed."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except ImportError as error:
        name = str(getattr(error, "name", None) or error)
        raise ConfigError(
            OPTION,
            f"{redacted(uri)}, whose driver {name} is not installed",
            "a driver of it",
            f"pip install {_PACKAGES.get(name, name)}, or name another: "
            "postgresql+psycopg://…, mysql+pymysql://…",
        ) from None
    except SQLAlchemyError as error:
        reason = " ".join(scrubbed(str(error), uri).split()).partition("(Background")[0].strip()
        raise ConfigError(OPTION, f"{redacted(uri)} ({reason})", EXPECTED, LEAVE) from None


_PACKAGES = {"psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}
