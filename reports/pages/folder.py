"""A report's folder: each file whole, and none left of a report that stood there before.

Which files are the report's own stands in `MANIFEST` beside them, each with the SHA-256 of what was
written: a file of somebody else's, or one that was edited since, is never taken away.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

MANIFEST = ".written.json"


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all: a reader never sees half a page."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def settle(folder: Path, paths: Iterable[Path]) -> None:
    """Take away what an earlier report wrote here and this one, of these files, did not; note what
    this one wrote."""
    written = {path.name: _digest(path) for path in paths}
    for name, digest in _former(folder).items():
        path = folder / name
        if name not in written and path.is_file() and _digest(path) == digest:
            path.unlink()
    write(folder / MANIFEST, json.dumps(written, indent=0, sort_keys=True) + "\n")


def _former(folder: Path) -> dict[str, str]:
    """Return the digests of what an earlier report wrote, of files in this folder alone."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return {name: digest for name, digest in found.items() if Path(name).name == name}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
