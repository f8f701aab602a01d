"""What several commands take: one function an option. Imports nothing heavy."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn, Protocol

from reports.uri import clean


class Commands(Protocol):
    """What argparse's `add_subparsers` gives, of which it has no public type."""

    def add_parser(self, name: str, **more: Any) -> argparse.ArgumentParser: ...


class Parser(argparse.ArgumentParser):
    """Tells what it does not understand without the passwords in it."""

    def error(self, message: str) -> NoReturn:
        super().error(clean(message))


def positive(text: str) -> int:
    """A count of at least one."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 2**31):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a whole number, at least 1")
    return int(text)


def allow_partial(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--allow-partial",
        action="store_true",
        help="go on where images of a data set are missing, or are not as many as its makers say; "
        "what is there is another data set, with trials of its own",
    )


def out(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--out", default="runs", metavar="DIR", help="output folder (default: ./runs)"
    )


def tracking(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow; env:NAME: the URI in this environment variable, where a password is not in "
        "the process list (default: SQLite in --out)",
    )
