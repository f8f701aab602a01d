"""Whether an MLflow store that is named can be one, before any trial starts."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from trainables.errors import ConfigError

OPTION = "--tracking-uri"
SCHEMES = (
    "sqlite", "http", "https", "postgresql", "mysql", "mssql", "file", "databricks",
)  # fmt: skip
SECONDS = 5.0


def check_store(uri: str) -> None:
    """That `uri` has a scheme MLflow knows and that its server, if it is one, takes connections.

    A server that goes away later stops nothing: `ablate ledger replay` writes what it missed.

    Raises:
        ConfigError: an unknown scheme, or nobody listening.
    """
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        raise ConfigError(OPTION, f"{uri!r} ({error})", "an MLflow URI", "Correct it") from None
    scheme = parts.scheme.split("+")[0]  # postgresql+psycopg2
    if uri == "databricks" or (uri and not parts.scheme and "://" not in uri):
        return  # a profile, or a folder
    if scheme not in SCHEMES:
        raise ConfigError(
            OPTION, repr(uri), f"an MLflow URI: {', '.join(SCHEMES[:4])}, …",
            "Leave it out for SQLite in --out",
        )  # fmt: skip
    if scheme not in ("http", "https"):
        return
    port = port or (443 if scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), SECONDS).close()
    except OSError as error:
        raise ConfigError(
            OPTION, f"no answer from {parts.hostname}:{port} ({error.strerror or error})",
            "an MLflow server", "Start it, or leave the option out: `ablate ledger replay "
            "--tracking-uri` writes a finished sweep to it later",
        ) from None  # fmt: skip
