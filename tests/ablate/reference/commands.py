"""The page of all commands and their options, from their argument parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ablate.cli.main import build_parser
from tests.ablate.reference.markdown import cell, code, table
from trainables.jobs.batch import build_parser as batch_parser

HEAD = ("argument", "default", "meaning")


def page() -> str:
    """All of it, in Markdown."""
    return "\n\n".join([*_command("ablate", build_parser()), *_command(BATCH, batch_parser())])


BATCH = "python -m trainables.jobs.batch"


def _command(name: str, command: argparse.ArgumentParser, summary: str = "") -> Iterator[str]:
    yield f"## {name}"
    about = command.description or summary
    if about:
        yield _sentence(about)
    below: list[tuple[str, argparse.ArgumentParser, str]] = []
    rows = []
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            told = {choice.dest: choice.help or "" for choice in action._choices_actions}
            below += [(n, sub, told.get(n, "")) for n, sub in action.choices.items()]
        elif action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
            rows.append(_row(action))
    if rows:
        yield table(HEAD, rows)
    if command.epilog:
        yield _sentence(command.epilog)
    for inner, sub, told_of in below:
        yield from _command(f"{name} {inner}", sub, told_of)


def _row(action: argparse.Action) -> tuple[str, str, str]:
    """`--option VALUE`, its default where its help does not say it, its help."""
    values = "" if action.nargs == 0 else _values(action)
    names = [f"{name} {values}".strip() for name in action.option_strings] or [values]
    shown = ", ".join(code(name) for name in names)
    needed = action.required and bool(action.option_strings)
    told = (action.help or "") % {**vars(action), "prog": "ablate"}
    default = "required" if needed else ""
    if action.default not in (None, False, argparse.SUPPRESS) and action.default != []:
        default = "" if "default" in told else code(str(action.default))
    return shown, default, cell(told)


def _values(action: argparse.Action) -> str:
    names = action.metavar or action.dest.upper()
    if action.choices is not None:
        names = "|".join(map(str, action.choices))
    shown = " ".join(names) if isinstance(names, tuple) else names
    if isinstance(action.nargs, int) and not isinstance(names, tuple):
        shown = " ".join([shown] * action.nargs)
    many = {"?": f"[{shown}]", "*": f"[{shown} …]", "+": f"{shown} …"}
    return many.get(str(action.nargs), shown)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "!")) else ".")
