"""A password in an MLflow URI is not shown, however the URI is written."""

from __future__ import annotations

import pytest

from trainables.words.secrets import (
    find_server_address,
    has_secret,
    redact_all_uris,
    redact_text,
    redact_uri,
)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        (
            "postgresql+psycopg://me:w%40rd@h:5/db?sslpassword=x&sslmode=on",
            "postgresql+psycopg://me:***@h:5/db?sslpassword=***&sslmode=on",
        ),
        ("mysql://h/db?user=a@b&password=word", "mysql://h/db?user=a@b&password=***"),
        ("mssql+pyodbc:///?odbc_connect=PWD%3Dword", "mssql+pyodbc:///?odbc_connect=***"),
        ("https://token@host/x", "https://***@host/x"),
        ("https://host/x?access_token=word;a=b", "https://host/x?access_token=***;a=b"),
        ("sqlite:///x.db?password=word", "sqlite:///x.db?password=***"),
        # Malformed: rather too much than too little.
        ("postgresql://me:p@ss/w?rd@h:5/db", "postgresql://me:***@h:5/db"),
        ("me:word@host/db", "me:***@host/db"),
    ],
)
def test_secrets_are_hidden(uri: str, shown: str) -> None:
    assert redact_uri(uri) == shown and has_secret(uri)
    assert redact_uri(shown) == shown


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:////home/me:x@work/m.db",
        "http://host:80/p@x",
        "postgresql://me@host/db",
        "databricks://profile",
        "some/folder",
        "env:NAME",
        "",
    ],
)
def test_what_is_no_secret_stays(uri: str) -> None:
    assert redact_uri(uri) == uri and not has_secret(uri)


def test_other_peoples_messages() -> None:
    uri = "postgresql://me:w%40rd-5@host/db"
    said = f"cannot connect to {uri} as me with w@rd-5 (quoted: w%40rd-5)"
    assert redact_text(said, uri) == (
        "cannot connect to postgresql://me:***@host/db as me with *** (quoted: ***)"
    )
    short = "http://me:a@host"
    assert redact_text("a bad answer of http://me:a@host/api", short) == (
        "a bad answer of http://me:***@host/api"
    ), "a short password is a part of words"
    assert (
        redact_all_uris("unknown: --uri=http://me:word@h x") == "unknown: --uri=http://me:***@h x"
    )


def test_pages_are_linked_without_a_name() -> None:
    assert find_server_address("https://me:word@host:5/x?token=y") == "https://host:5/x/"
    assert find_server_address("sqlite:///x.db") == ""
