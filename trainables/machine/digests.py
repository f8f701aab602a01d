"""Digests of a folder's files, block by block: one changed byte is found before it is used.

`digests.json`, beside the files:

    {"block": bytes, "files": {name: {"size": bytes, "sha256": [hex of each block]}}}

behind a line with the SHA-256 of that text (`sealed`), so that it vouches for itself too. Blocks
are read by threads side by side: reading and hashing release the interpreter's lock, and with a
processor's SHA instructions a core does 1 to 2 GB/s.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainables.machine.processes import cores

BLOCK = 64 * 2**20
PIECE = 2**20  # read at once
MANIFEST = "digests.json"


def sealed(content: dict[str, Any]) -> bytes:
    """JSON behind a line with its SHA-256."""
    text = json.dumps(content, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def unsealed(path: Path) -> dict[str, Any] | None:
    """What a file of `sealed` bytes holds; None where one of them is another, or it has no digest.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        digest, _, text = file.read().partition(b"\n")
    if digest != hashlib.sha256(text).hexdigest().encode():
        return None
    seals: dict[str, Any] = json.loads(text)
    return seals


def seal(folder: Path) -> None:
    """Write the digests of all files in `folder` beside them."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    files: dict[str, Any] = {
        path.name: {"size": path.stat().st_size, "sha256": []} for path in paths
    }
    blocks = [
        (path, start) for path in paths for start in range(0, files[path.name]["size"], BLOCK)
    ]
    with ThreadPoolExecutor(cores()) as pool:
        for (path, _), digest in zip(blocks, pool.map(_digest, blocks), strict=True):
            files[path.name]["sha256"].append(digest)
    (folder / MANIFEST).write_bytes(sealed({"block": BLOCK, "files": files}))


def damage(folder: Path) -> str | None:
    """What is wrong with the files of a sealed folder, in a few words; None: nothing.

    All that was sealed is read; files that came later are not looked at.
    """
    try:
        manifest = unsealed(folder / MANIFEST)
        if manifest is None:
            return f"{MANIFEST} is not as it was written"
        for name, file in manifest["files"].items():
            size = (folder / name).stat().st_size
            if size != file["size"]:
                return f"{name} has {size} bytes of {file['size']}"
        return _changed(folder, manifest)
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except OSError as error:
        return f"{Path(str(error.filename or folder)).name} cannot be read ({error.strerror})"


def _changed(folder: Path, manifest: dict[str, Any]) -> str | None:
    """The first block that is another one than was sealed."""
    if manifest["block"] != BLOCK:
        return f"{MANIFEST} is of blocks of {manifest['block']} bytes, not {BLOCK}"
    blocks = [
        (folder / name, number * BLOCK, digest)
        for name, file in manifest["files"].items()
        for number, digest in enumerate(file["sha256"])
    ]
    with ThreadPoolExecutor(cores()) as pool:
        digests = pool.map(_digest, [block[:2] for block in blocks])
        for (path, start, wanted), digest in zip(blocks, digests, strict=True):
            if digest != wanted:
                pool.shutdown(cancel_futures=True)
                return f"{path.name} is not as it was written, in the block from byte {start}"
    return None


def _digest(block: tuple[Path, int]) -> str:
    """SHA-256 of the block of a file that starts at a byte."""
    path, start = block
    digest, buffer, left = hashlib.sha256(), memoryview(bytearray(PIECE)), BLOCK
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while left and (read := file.readinto(buffer[: min(left, PIECE)])):
            digest.update(buffer[:read])
            left -= read
    return digest.hexdigest()
