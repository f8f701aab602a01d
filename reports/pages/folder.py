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


def write_atomically(path: Path, text: str) -> None:
    """Write a file whole or not at all: a reader never sees half a page."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def remove_stale_files(folder: Path, paths: Iterable[Path]) -> None:
    """Take away what an earlier report wrote here and this one, of these files, did not; note what
    this one wrote."""
    written, manifest = {path.name: _compute_digest(path) for path in paths}, folder / MANIFEST
    earlier = json.loads(manifest.read_text(encoding="utf-8")) if manifest.is_file() else {}
    for name, digest in earlier.items():
        path = folder / name
        own = name not in written and Path(name).name == name  # not of another folder
        if own and path.is_file() and _compute_digest(path) == digest:
            path.unlink()
    write_atomically(manifest, json.dumps(written, indent=0, sort_keys=True) + "\n")


def _compute_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
