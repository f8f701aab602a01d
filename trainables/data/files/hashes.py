"""SHA-256 of many files, each read once: files that are known are not read again.

A file is known by its size, modification time, change time and inode. The first two alone survive
a replacement: `tar -x`, `rsync -t` and archives with normalised times restore them. No program can
set the other two. What was read is written down from time to time, so that a pass that was killed
goes on.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from trainables.data.cache import explained
from trainables.data.files.lists import reading
from trainables.machine.digests import sealed, unsealed
from trainables.machine.files import write_atomically
from trainables.machine.processes import cores
from trainables.machine.progress import Progress

LOG = logging.getLogger(__name__)
SECONDS = 5.0  # between two writings, and at least so many times as long as one takes:
SPARED = 20
AT_ONCE = 256  # files a task: of those that are known, handing one over costs more than looking
COPIES = 4  # stamps a file: nodes may share a cache and each have the data on a disk of its own

Entry = list[list[str]]  # of one file: [stamp, digest] of each copy that was seen, newest first

_hash_anew: ContextVar[bool] = ContextVar("hash_anew", default=False)


@contextmanager
def hashing_anew() -> Iterator[None]:
    """Read every file in this block, whatever is known of it, and renew what is known."""
    token = _hash_anew.set(True)
    try:
        yield
    finally:
        _hash_anew.reset(token)


def file_hashes(root: Path, names: Sequence[str], cache: Path) -> dict[str, str]:
    """Return name, relative to `root`, → SHA-256 (hex) of the file; what is known lies in `cache`.

    Raises:
        ConfigError: a file cannot be read; names it.
        OSError: the cache cannot be written; says where.
    """
    index = cache / f"hashes-{hashlib.sha256(str(root).encode()).hexdigest()[:16]}.json"
    known = _read_entries(index)
    trusted = {} if _hash_anew.get() else known
    base = os.fspath(root)

    def hash_file(name: str) -> tuple[str, str, Entry]:
        path = os.path.join(base, name)  # noqa: PTH118 - a Path costs more than the look itself
        with reading(path, "a readable image", "Check its permissions"):
            stamp = _stamp(os.stat(path))  # noqa: PTH116
            for seen, digest in trusted.get(name, ()):
                if seen == stamp:
                    return name, digest, trusted[name]
            with Path(path).open("rb") as opened:
                stamp = _stamp(os.fstat(opened.fileno()))
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        others = [each for each in known.get(name, ()) if each[0] != stamp]
        return name, digest, [[stamp, digest], *others[: COPIES - 1]]

    def hash_block(start: int) -> list[tuple[str, str, Entry]]:
        return [hash_file(name) for name in names[start : start + AT_ONCE]]

    digests: dict[str, str] = {}
    entries: dict[str, Entry] = {}
    replaced: list[str] = []
    pause, last, progress = SECONDS, time.monotonic(), Progress(f"hashing {root}", len(names))
    fresh = False
    with ThreadPoolExecutor(cores()) as pool:
        for block in pool.map(hash_block, range(0, len(names), AT_ONCE)):
            for name, digest, entry in block:
                digests[name], entries[name] = digest, entry
                fresh = fresh or known.get(name) != entry
                if _is_replaced(known.get(name), entry):
                    replaced.append(name)
            progress.at(len(digests))
            if fresh and (begun := time.monotonic()) - last >= pause:
                _write_entries(index, known | entries)
                fresh, last = False, time.monotonic()
                pause = max(SECONDS, SPARED * (last - begun))  # of a large set the index is large
    if entries != known:
        _write_entries(index, entries)
    if replaced:
        LOG.warning(
            "%s: %s of %s files hold other bytes than before, though their size and modification "
            "time are the same (%s, for one): the data set has another fingerprint now, and its "
            "trials are trained anew",
            root,
            f"{len(replaced):,}",
            f"{len(names):,}",
            replaced[0],
        )
    return digests


def _stamp(stat: os.stat_result) -> str:
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"


def _is_replaced(before: Entry | None, entry: Entry) -> bool:
    """Return whether a file differs from a known one of the same size and modification time."""
    stamp, digest = entry[0]
    alike = [seen for seen in before or () if seen[0].split()[:2] == stamp.split()[:2]]
    return bool(alike) and all(seen[1] != digest for seen in alike)


def _read_entries(index: Path) -> dict[str, Entry]:
    """Return what is known of the files; nothing where the index is damaged."""
    try:
        known: dict[str, Entry] = unsealed(index) or {}
    except OSError:
        return {}
    return known if all(isinstance(entry[0], list) for entry in known.values()) else {}


def _write_entries(index: Path, entries: dict[str, Entry]) -> None:
    with explained(index.parent):
        write_atomically(index, sealed(entries))
