"""JSON lines that vouch for themselves: a head, and the lines that it counts.

    {"sheet": "cells", "version": 1, "lines": 12, "body": SHA-256, "sha256": SHA-256, "head": {…}}
    {…}
    …

`body` is the digest of all bytes after the first line, `sha256` that of the first line without it.
So a file that was cut off, edited or mixed up is told from one that is as it was written, and
reading one runs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.errors import ConfigError
from trainables.machine.files import read_regular, write_atomically

SEAL = "sha256"
MOST_DEPTH = 50


@dataclass(frozen=True)
class Kind:
    """One sort of sheet.

    what: in words. remedy: what to do about one that is not as it was written.
    most_bytes: of a file, as it may be a stranger's. follow_links: whether it may be a link.
    """

    name: str
    version: int
    what: str
    remedy: str
    most_bytes: int = 2**30
    follow_links: bool = True


def write_sheet(
    path: Path, kind: Kind, head: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]
) -> None:
    """Whole or not at all, and on disk once it returns."""
    texts = [_text(line) for line in lines]
    body = b"".join(text + b"\n" for text in texts)
    first = {
        "sheet": kind.name,
        "version": kind.version,
        "lines": len(texts),
        "body": hashlib.sha256(body).hexdigest(),
        "head": head,
    }
    sealed = {SEAL: hashlib.sha256(_text(first)).hexdigest(), **first}
    write_atomically(path, _text(sealed) + b"\n" + body)


def read_sheet(path: Path, kind: Kind) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head and the lines.

    Raises:
        ConfigError: no file, another kind of file, a newer one, or one that is cut off or altered.
    """
    try:
        data = read_regular(path, most_bytes=kind.most_bytes, follow_links=kind.follow_links)
    except OSError as error:
        raise ConfigError(
            str(path), f"no file to read ({error.strerror})", kind.what, kind.remedy
        ) from None
    top, newline, body = data.partition(b"\n")
    first = _head(path, kind, top, whole=bool(newline))
    lines = body.count(b"\n")
    if lines < first["lines"] or not (body.endswith(b"\n") or not body):
        raise ConfigError(
            str(path),
            f"a file that is cut off after {lines} of {first['lines']} lines",
            "all of them",
            kind.remedy,
        )
    if hashlib.sha256(body).hexdigest() != first["body"]:
        found = "lines that were changed after it was written"
        if lines != first["lines"]:
            found = f"{lines} lines where its first one counts {first['lines']}"
        raise ConfigError(str(path), found, "the lines as they were written", kind.remedy)
    try:
        _check_depth(first["head"])
        return first["head"], [_parsed(line) for line in body.splitlines()]
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            str(path), f"a line that is no JSON object ({error})", "lines of objects", kind.remedy
        ) from None


def _parsed(line: bytes) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:50]!r}")
    _check_depth(value)
    return value


def _check_depth(value: object) -> None:
    """Raise ValueError for values nested so deep that whoever walks through them ends in an error
    of the interpreter's."""
    level: list[object] = [value]
    for _ in range(MOST_DEPTH):
        level = [
            part
            for each in level
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise ValueError(f"values nested more than {MOST_DEPTH} deep")


def _head(path: Path, kind: Kind, line: bytes, *, whole: bool) -> dict[str, Any]:
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):  # no UTF-8 and no JSON alike
        first = None
    if not isinstance(first, dict) or not {"sheet", "version", SEAL} <= first.keys():
        cut = not whole and line.startswith(b'{"')
        found = "a file that is cut off in its first line" if cut else "a file of another kind"
        raise ConfigError(str(path), found, kind.what, kind.remedy)
    if first["sheet"] != kind.name:
        name = first["sheet"]
        plain = isinstance(name, str) and name.isalpha()
        shown = f"a sheet of {name if plain else repr(name)}"[:200]
        raise ConfigError(str(path), shown, kind.what, kind.remedy)
    if first["version"] != kind.version:
        raise ConfigError(
            str(path),
            f"version {first['version']!r} of its format"[:200],
            f"version {kind.version}",
            "Put the same ablate on both machines",
        )
    seal = first.pop(SEAL)
    kinds = {"lines": int, "body": str, "head": dict}
    whole_head = all(isinstance(first.get(name), of) for name, of in kinds.items())
    if not whole_head or hashlib.sha256(_text(first)).hexdigest() != seal:
        raise ConfigError(
            str(path),
            "a first line that was changed after it was written",
            "the line as it was written",
            kind.remedy,
        )
    return first


def _text(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, sort_keys=True, separators=(",", ":")).encode("ascii")
