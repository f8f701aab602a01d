"""Compute the SHA-256 of many files, and read unchanged files only once.

A file counts as unchanged if size, modification time, change time and inode are equal. `tar -x`,
`rsync -t` and normalised archives restore the first two; no program can set the others.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainables.data.cache import explain_write_errors
from trainables.data.files.lists import name_unreadable_file
from trainables.machine.processes import count_cores
from trainables.words.files import write_atomically
from trainables.words.terminal import ImageProgress

AT_ONCE = 256  # files a task: handing over a single one costs more than looking at its stamp
COPIES = 4  # of a file: nodes may share a cache and each have the data on a disk of its own


def hash_files(root: Path, names: Sequence[str], cache: Path) -> dict[str, str]:
    """Return each file's SHA-256 (hex) by name; read only files without a valid one in `cache`."""
    index = cache / f"hashes-{hashlib.sha256(str(root).encode()).hexdigest()[:16]}.json"
    try:
        _, brace, rest = index.read_bytes().partition(b"{")  # 0.2.0 wrote a line before the JSON
        earlier = json.loads(brace + rest)
    except (OSError, ValueError):  # the index does not exist, or is damaged
        earlier = {}
    base = os.fspath(root)

    def hash_file(name: str) -> tuple[str, list[list[str]]]:
        """Return a file's SHA-256, and pairs [stamp, SHA-256] of its copies on several machines."""
        path = os.path.join(base, name)  # noqa: PTH118 - a Path costs more than the stamp
        copies = earlier.get(name, [])
        with name_unreadable_file(path):
            stamp = _read_stamp(os.stat(path))  # noqa: PTH116 - the stamp changes with the file
            for copy_stamp, digest in copies:
                if copy_stamp == stamp:
                    return digest, copies
            with Path(path).open("rb") as opened:
                stamp = _read_stamp(os.fstat(opened.fileno()))
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return digest, [[stamp, digest], *copies][:COPIES]

    results: dict[str, tuple[str, list[list[str]]]] = {}
    progress = ImageProgress(f"hashing {root}", len(names))
    blocks = [names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)]
    with ThreadPoolExecutor(count_cores()) as pool:
        hashed = pool.map(lambda block: list(map(hash_file, block)), blocks)
        for block, block_results in zip(blocks, hashed, strict=True):
            results |= zip(block, block_results, strict=True)
            progress.update(len(results))
    entries = {name: copies for name, (_, copies) in results.items()}
    if entries != earlier:
        with explain_write_errors(cache):
            write_atomically(index, json.dumps(entries).encode())
    return {name: digest for name, (digest, _) in results.items()}


def forget_hashes(cache: Path) -> None:
    """Delete the cached hashes, so that every file is read again."""
    with explain_write_errors(cache):
        for index in cache.glob("hashes-*.json"):
            index.unlink()


def _read_stamp(stat: os.stat_result) -> str:
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"
