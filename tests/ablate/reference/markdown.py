"""Cells, tables and links of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """In one line of a table."""
    return " ".join(text.split()).replace("|", r"\|")


def code(text: str) -> str:
    return f"`{cell(text)}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns that are empty in all rows are left out."""
    body = [list(row) for row in rows]
    kept = [i for i in range(len(head)) if any(row[i] for row in body)]
    lines = [
        [head[i] for i in kept],
        ["---"] * len(kept),
        *([row[i] for i in kept] for row in body),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def slug(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def link(text: str, title: str) -> str:
    return f"[{text}](#{slug(title)})"
