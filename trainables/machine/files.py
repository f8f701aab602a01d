"""Files that are whole or absent, whatever is killed when, and names that stay in their folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from trainables.errors import ConfigError


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


def inside(folder: Path, name: object) -> Path:
    """`folder / name`, of a name that somebody else wrote down: it cannot lead anywhere else.

    Raises:
        ConfigError: `name` is no plain file name (`../x`, `/x`, `a/b`, ``, `..`).
    """
    if isinstance(name, str) and name not in ("", ".", "..") and "\0" not in name:
        path = folder / name
        if path.parent == folder and path.name == name:
            return path
    raise ConfigError(
        str(folder),
        f"{name!r} as the name of a file in it",
        "a name without a path",
        "Its records were edited: copy the folder anew, or train the trial again (--force)",
    )
