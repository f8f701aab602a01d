"""What befalls a ledger's file while a sweep runs: functions of its path, by name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ablate.ledger.ledger import Ledger, Owner

TEXT = "This is a text and no database.\n"


def make_other(path: Path, trials: int) -> Path:
    """Make another valid ledger beside a ledger; return its path."""
    other = path.with_name(f"other-{trials}.sqlite")
    with Ledger(other) as ledger, ledger.begin_transaction():
        for i in range(trials):
            ledger.claim(f"t{i}", "h", 0, {"x": "y" * 200}, Owner.from_this_process())
    return other


def overwrite(path: Path, content: bytes, start: int = 0) -> None:
    """Write into the file itself, which stays the same file."""
    with path.open("r+b") as stream:
        stream.seek(start)
        stream.write(content)


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def delete_with_journal(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


KINDS: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: os.truncate(path, 0),
    "cut in its header": lambda path: os.truncate(path, 50),
    "cut after its header": lambda path: os.truncate(path, 100),
    "cut in a page": lambda path: os.truncate(path, 2048),
    "cut after a page": lambda path: os.truncate(path, 4096),
    "cut in half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "replaced by a text": lambda path: path.write_text(TEXT),
    "replaced by a file of text": lambda path: shutil.copy(__file__, path.with_name("x")).replace(
        path
    ),
    "replaced by another ledger": lambda path: make_other(path, 3).replace(path),
    "replaced by a smaller ledger": lambda path: shutil.copyfile(make_other(path, 0), path),
    "replaced by a folder": put_folder,
    "deleted": Path.unlink,
    "deleted with its journal": delete_with_journal,
    "moved": lambda path: path.rename(path.with_name("moved")),
    # the file and its size stay
    "zeros": lambda path: overwrite(path, bytes(path.stat().st_size - 4096), 4096),
    "a text over its header": lambda path: overwrite(path, TEXT.encode()),
    "a text of its size": lambda path: overwrite(path, TEXT.encode() * (path.stat().st_size // 32)),
    "a larger ledger over it": lambda path: shutil.copyfile(make_other(path, 2000), path),
}
SAME_FILE = ("zeros", "a text over its header", "a text of its size", "a larger ledger over it")
