"""What PyYAML says of a file that it cannot read, and a fault of it in words of the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import yaml


class Fault(NamedTuple):
    """line: 1-based."""

    line: int
    found: str
    expected: str
    remedy: str


class Report(NamedTuple):
    """What PyYAML says of `lines`: the line and column it stopped at, the line where what it was
    reading began (both from 0), and its words."""

    lines: Sequence[str]
    at: int
    began: int
    column: int
    problem: str
    context: str

    @property
    def line(self) -> str:
        return self.lines[self.at]

    @property
    def rest(self) -> str:
        """The line from where it stopped."""
        return self.line[self.column :].strip()

    @property
    def token(self) -> str:
        """The token met instead of the one expected."""
        return re.split(r"found |got ", self.problem)[-1].strip("'")

    def fault(self, found: str, expected: str, remedy: str) -> Fault:
        return Fault(self.at + 1, found, expected, remedy)


def report_of(text: str, error: yaml.MarkedYAMLError) -> Report:
    """Of an error that PyYAML raised for `text`."""
    lines = [*text.splitlines(), ""]
    mark = error.problem_mark or error.context_mark
    assert mark is not None
    at, began = (min(place.line, len(lines) - 1) for place in (mark, error.context_mark or mark))
    return Report(lines, at, began, mark.column, str(error.problem), str(error.context or ""))
