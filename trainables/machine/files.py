"""Files that are whole or absent, whatever is killed when."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file beside `path`, flush to disk, rename over it, flush the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Indented, keys sorted; NaN and infinities, which JSON does not know, are errors."""
    text = json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_atomically(path, text.encode())
