"""SHA-256 of many files, each read once: files that are known are not read again.

A file is known by its size, modification time, change time and inode. The first two alone survive
a replacement: `tar -x`, `rsync -t` and archives with normalised times restore them. No program can
set the other two.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from trainables.data.cache import explain_write_errors
from trainables.data.files.lists import name_unreadable_file
from trainables.machine.digests import read_sealed_json, seal_json
from trainables.machine.files import write_atomically
from trainables.machine.processes import count_cores
from trainables.machine.progress import Progress

AT_ONCE = 256  # files a task: of those that are known, handing one over costs more than looking
COPIES = 4  # stamps a file: nodes may share a cache and each have the data on a disk of its own

_hash_anew: ContextVar[bool] = ContextVar("hash_anew", default=False)


@contextmanager
def rehash_everything() -> Iterator[None]:
    """Read every file in this block, whatever is known of it, and renew what is known."""
    token = _hash_anew.set(True)
    try:
        yield
    finally:
        _hash_anew.reset(token)


def hash_files(root: Path, names: Sequence[str], cache: Path) -> dict[str, str]:
    """Return name, relative to `root`, → SHA-256 (hex) of the file; what is known lies in `cache`.

    Raises:
        ConfigError: a file cannot be read; names it.
        OSError: the cache cannot be written; says where.
    """
    index = cache / f"hashes-{hashlib.sha256(str(root).encode()).hexdigest()[:16]}.json"
    try:
        # name → [stamp, digest] of each copy that was seen, newest first
        known: dict[str, list[list[str]]] = read_sealed_json(index) or {}
    except OSError:
        known = {}
    base, anew = os.fspath(root), _hash_anew.get()

    def hash_file(name: str) -> tuple[str, str, list[list[str]]]:
        path = os.path.join(base, name)  # noqa: PTH118 - a Path costs more than the look itself
        copies = known.get(name, [])
        with name_unreadable_file(path, "check its permissions"):
            stamp = _read_stamp(os.stat(path))  # noqa: PTH116
            for seen, digest in [] if anew else copies:
                if seen == stamp:
                    return name, digest, copies
            with Path(path).open("rb") as opened:
                stamp = _read_stamp(os.fstat(opened.fileno()))
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        others = [copy for copy in copies if copy[0] != stamp]
        return name, digest, [[stamp, digest], *others[: COPIES - 1]]

    def hash_block(start: int) -> list[tuple[str, str, list[list[str]]]]:
        return [hash_file(name) for name in names[start : start + AT_ONCE]]

    digests: dict[str, str] = {}
    entries: dict[str, list[list[str]]] = {}
    progress = Progress(f"hashing {root}", len(names))
    with ThreadPoolExecutor(count_cores()) as pool:
        for block in pool.map(hash_block, range(0, len(names), AT_ONCE)):
            for name, digest, copies in block:
                digests[name], entries[name] = digest, copies
            progress.update(len(digests))
    if entries != known:
        with explain_write_errors(cache):
            write_atomically(index, seal_json(entries))
    return digests


def _read_stamp(stat: os.stat_result) -> str:
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"
