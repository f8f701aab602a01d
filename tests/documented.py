"""What the READMEs show: commands, in blocks and in lines, and blocks of YAML and Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GUIDES = ROOT / "docs" / "guides"
PICTURES = ROOT / "docs" / "pictures"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}\S.*\n)+")
INLINE = re.compile(r"`([^`\n]+)`")
BEGINS = ("ablate ", "python -m ", "make ", "… -")
SHELL = re.compile(r"&&|\|\||;|^\s*(?:while|do|done|export \S+|#!.*)\b|^\s*#.*", re.MULTILINE)


class Command(NamedTuple):
    """words: as a shell would split it. block: whether it stands in a block, complete."""

    page: str
    words: list[str]
    block: bool


def pages() -> list[Path]:
    """Those that people write; the reference is written by its own test's generator."""
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted(GUIDES.glob("*.md")),
        ROOT / "search_spaces" / "README.md",
        *sorted((ROOT / "search_spaces" / "results").glob("*.md")),
        *(ROOT / name / "README.md" for name in ("ablate", "reports", "trainables")),
        ROOT / "trainables" / "jobs" / "README.md",
        ROOT / "ablate" / "cluster" / "README.md",
        ROOT / "reports" / "stats" / "README.md",
    ]


def blocks(page: Path, *languages: str) -> list[str]:
    found = FENCED.findall(page.read_text(encoding="utf-8"))
    return [text for language, text in found if language in languages]


def split_commands(block: str) -> Iterator[list[str]]:
    for line in SHELL.sub("\n", block.replace("\\\n", " ")).splitlines():
        command = line.strip().removeprefix("srun ")
        if command.startswith(BEGINS):
            yield shlex.split(command, comments=True)


def commands(page: Path) -> Iterator[Command]:
    """In the order of the page's blocks, then of its lines."""
    text, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
    prose = FENCED.sub("", text)
    for block in (*blocks(page, "", "bash"), *INDENTED.findall(prose)):
        for words in split_commands(block):
            yield Command(name, words, True)
    for code in INLINE.findall(INDENTED.sub("", prose)):
        if code.startswith(BEGINS):
            yield Command(name, shlex.split(code), False)
