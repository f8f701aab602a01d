"""Lines of a YAML file as a person sees them: how far they are indented, which keys are open."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

SHOWN = 50
_KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s#'"\[\]{},&*!|>%@`-][^#]*?|-[^\s#][^#]*?)\s*:(?:\s|$)""")


class Level(NamedTuple):
    """A key or list entry that is open where a line begins. line: 1-based."""

    indent: int
    text: str
    line: int
    entry: bool


def open_levels(lines: Sequence[str], at: int) -> list[Level]:
    """The keys and entries above line `at` that are still open there, innermost first."""
    levels: list[Level] = []

    def add(indent: int, text: str, number: int, *, entry: bool = False) -> None:
        if not levels or indent < levels[-1].indent:
            levels.append(Level(indent, text, number + 1, entry))

    for number in range(at - 1, -1, -1):
        line = lines[number]
        if not content(line):
            continue
        key = key_of(line)
        if is_entry(line):
            inner = line.lstrip(" -")
            if key is not None:
                add(len(line) - len(inner), key, number)
            add(indent_of(line), "- …", number, entry=True)
        elif key is not None:
            add(indent_of(line), key, number)
    return levels


def key_of(line: str) -> str | None:
    """`key:` of a line that has one, also after the dash of a list entry."""
    match = _KEY.match(line.strip() if not is_entry(line) else line.lstrip(" -"))
    return f"{match[1]}:" if match else None


def is_entry(line: str) -> bool:
    return line.strip() == "-" or line.strip().startswith("- ")


def content(line: str) -> bool:
    """Whether a line is more than a comment."""
    return bool(line.strip()) and not line.strip().startswith("#")


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def spaces(count: int) -> str:
    return "1 space" if count == 1 else f"{count} spaces"


def cut(text: str) -> str:
    """A line for a message."""
    text = text.strip()
    return f"`{text if len(text) <= SHOWN else text[: SHOWN - 1] + '…'}`"
