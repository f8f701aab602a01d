"""SHA-256 of many files, each read once: known ones (same size and time) are not read again.

What was read is written down from time to time, so that a pass that was killed goes on.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainables.data.cache import explained
from trainables.errors import ConfigError
from trainables.machine.digests import sealed, unsealed
from trainables.machine.processes import cores
from trainables.machine.progress import Progress

SECONDS = 5.0  # between two writings, and at least so many times as long as one takes:
SPARED = 20
AT_ONCE = 256  # files a task: of those that are known, handing one over costs more than looking


def file_hashes(root: Path, names: Sequence[str], cache: Path) -> dict[str, str]:
    """Name, relative to `root`, → SHA-256 (hex) of the file; what is known lies in `cache`.

    Raises:
        ConfigError: a file cannot be read; names it.
        OSError: the cache cannot be written; says where.
    """
    index = cache / f"hashes-{hashlib.sha256(str(root).encode()).hexdigest()[:16]}.json"
    try:
        known: dict[str, list[str]] = unsealed(index) or {}
    except OSError:
        known = {}

    base = os.fspath(root)

    def one(name: str) -> tuple[str, list[str]]:
        path = os.path.join(base, name)  # noqa: PTH118 - a Path costs more than the look itself
        try:
            stat = os.stat(path)  # noqa: PTH116
            stamp = f"{stat.st_size} {stat.st_mtime_ns}"
            if name in known and known[name][0] == stamp:
                return name, known[name]
            with Path(path).open("rb") as opened:
                return name, [stamp, hashlib.file_digest(opened, "sha256").hexdigest()]
        except OSError as error:
            raise ConfigError(
                path, f"{error.strerror}", "a readable image", "Check its permissions"
            ) from error

    def several(start: int) -> list[tuple[str, list[str]]]:
        return [one(name) for name in names[start : start + AT_ONCE]]

    digests: dict[str, list[str]] = {}
    pause = SECONDS
    fresh, last, progress = False, time.monotonic(), Progress(f"hashing {root}", len(names))
    with ThreadPoolExecutor(cores()) as pool:
        for block in pool.map(several, range(0, len(names), AT_ONCE)):
            digests.update(block)
            fresh = fresh or any(known.get(name) != found for name, found in block)
            progress.at(len(digests))
            if fresh and (begun := time.monotonic()) - last >= pause:
                _write(index, known | digests)
                fresh, last = False, time.monotonic()
                pause = max(SECONDS, SPARED * (last - begun))  # of a large set the index is large
    if digests != known:
        _write(index, digests)
    return {name: digest for name, (_, digest) in digests.items()}


def _write(index: Path, digests: dict[str, list[str]]) -> None:
    cache = index.parent
    with explained(cache):
        cache.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(prefix=index.name, suffix=".tmp", dir=cache)
        with os.fdopen(handle, "wb") as out:
            out.write(sealed(digests))
        Path(fresh).replace(index)
