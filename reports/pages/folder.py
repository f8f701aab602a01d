"""Write the files of a report's folder atomically, and delete outdated ones.

`MANIFEST` lists the report's own files with their SHA-256. Files of others, and files that were
edited since, are never deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

MANIFEST = ".written.json"


def write_atomically(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def remove_stale_files(folder: Path, paths: Iterable[Path]) -> None:
    """Delete files of an earlier report that this one does not have, and write the manifest."""
    written, manifest = {path.name: _compute_digest(path) for path in paths}, folder / MANIFEST
    earlier = json.loads(manifest.read_text(encoding="utf-8")) if manifest.is_file() else {}
    for name, digest in earlier.items():
        path = folder / name
        is_stale = name not in written and Path(name).name == name  # not of another folder
        if is_stale and path.is_file() and _compute_digest(path) == digest:
            path.unlink()
    write_atomically(manifest, json.dumps(written, indent=0, sort_keys=True) + "\n")


def _compute_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
