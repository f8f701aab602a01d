"""Seal JSON and folders with SHA-256 digests, to detect damage."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainables.machine.processes import count_cores

MANIFEST = "digests.json"  # {"files": {name: SHA-256}}, beside the files


def seal_json(content: dict[str, Any]) -> bytes:
    """Serialise to JSON, after a line with its SHA-256."""
    text = json.dumps(content, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def read_sealed_json(path: Path) -> dict[str, Any] | None:
    """Read a file that `seal_json` made; return None if its digest does not match."""
    digest, _, text = path.read_bytes().partition(b"\n")
    if digest != hashlib.sha256(text).hexdigest().encode():
        return None
    content: dict[str, Any] = json.loads(text)
    return content


def seal_folder(folder: Path) -> None:
    """Write a manifest with the digests of all files in `folder`."""
    (folder / MANIFEST).write_bytes(seal_json({"files": _digest_files(folder)}))


def find_damage(folder: Path) -> str | None:
    """Verify all files of a sealed folder; return the first fault, or None."""
    try:
        manifest, digests = read_sealed_json(folder / MANIFEST), _digest_files(folder)
    except OSError as error:
        return f"{Path(str(error.filename or folder)).name} cannot be read ({error.strerror})"
    if manifest is None:
        return f"{MANIFEST} was altered"
    for name, digest in manifest["files"].items():
        if digests.get(name) != digest:
            return f"{name} is missing or was altered"
    return None


def _digest_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder but its manifest, by name."""

    def digest_file(path: Path) -> tuple[str, str]:
        with path.open("rb") as file:
            return path.name, hashlib.file_digest(file, "sha256").hexdigest()

    paths = [path for path in folder.iterdir() if path.name != MANIFEST]
    with ThreadPoolExecutor(count_cores()) as pool:
        return dict(pool.map(digest_file, paths))
