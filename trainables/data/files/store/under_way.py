"""A file that grows row by row, and goes on where a killed process left it.

Beside it lies the journal: from time to time a line

    <SHA-256 of the rest of the line> {"rows": […], "blocks": […], "rest": "…", "size": …}

with the rows since the line before, the digests of the blocks (`machine/digests.py`) that were
completed since, that of the bytes after the last whole block, and the length of the file. Whoever
goes on believes the journal up to the first line that is torn, and the file where its digests say
so; otherwise it begins anew. So the file ends in the same bytes however often it was interrupted,
and its digests need not be made by reading it again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from trainables.data.cache import JOURNAL
from trainables.machine import digests

LOG = logging.getLogger(__name__)
SECONDS = 1.0  # between two lines of the journal: what is lost at most


class UnderWay:
    """The file `name` in a folder that goes on.

    rows: the numbers of each row that is in it, as they were given; its bytes stand in order.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.path, self.journal = folder / name, folder / JOURNAL
        self.rows: list[list[int]] = []
        self.blocks: list[str] = []
        self.size = 0
        self._partial = hashlib.sha256()
        self._torn = False  # in the midst of a row, of which the journal must not tell
        end = self._restored()
        for file, size in ((self.path, self.size), (self.journal, end)):
            file.touch()
            os.truncate(file, size)
        self._said = len(self.rows), len(self.blocks)
        self._last = time.monotonic()
        self._data = self.path.open("ab")
        self._lines = self.journal.open("ab")

    def add(self, content: bytes | memoryview, numbers: list[int]) -> None:
        """A row: its bytes and the numbers that its table holds."""
        self._torn = True
        left = memoryview(content).cast("B")
        while left:
            part = left[: digests.BLOCK - self.size % digests.BLOCK]
            # Written, not mapped: a full disk is then an error here, not a SIGBUS later.
            self._data.write(part)
            self._partial.update(part)
            self.size += len(part)
            left = left[len(part) :]
            if self.size % digests.BLOCK == 0:
                self.blocks.append(self._partial.hexdigest())
                self._partial = hashlib.sha256()
        self.rows.append(numbers)
        self._torn = False
        if time.monotonic() - self._last >= SECONDS:
            self.note()

    def note(self) -> None:
        """A line of the journal; the bytes that it tells of are in the file before it is."""
        self._data.flush()
        rows, blocks = self._said
        line = json.dumps(
            {
                "rows": self.rows[rows:],
                "blocks": self.blocks[blocks:],
                "rest": self._partial.hexdigest(),
                "size": self.size,
            }
        ).encode()
        self._lines.write(hashlib.sha256(line).hexdigest().encode() + b" " + line + b"\n")
        self._lines.flush()
        self._said = len(self.rows), len(self.blocks)
        self._last = time.monotonic()

    def digests(self) -> list[str]:
        """Of the blocks of all that is in the file."""
        whole = self.size % digests.BLOCK == 0
        return self.blocks if whole else [*self.blocks, self._partial.hexdigest()]

    def __enter__(self) -> UnderWay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Note what is there, also where Ctrl-C came between two rows. In the midst of one, the
        journal stays as it was: what came since is made again."""
        try:
            if not self._torn and not isinstance(error, Exception):
                self.note()
        finally:
            self._data.close()
            self._lines.close()

    def _restored(self) -> int:
        """Take over what is there; returns how much of the journal is good."""
        lines, end = _believed(self.journal)
        if not lines:
            return 0
        blocks = [digest for line in lines for digest in line["blocks"]]
        size, rest = lines[-1]["size"], hashlib.sha256()
        try:
            same = digests.block_digests(self.path, len(blocks)) == blocks
            with self.path.open("rb") as file:
                file.seek(len(blocks) * digests.BLOCK)
                rest.update(file.read(size - len(blocks) * digests.BLOCK))
        except FileNotFoundError:
            same = False
        if not same or rest.hexdigest() != lines[-1]["rest"]:
            LOG.warning("%s is not as it was left; it is begun anew", self.path)
            return 0
        self.rows = [row for line in lines for row in line["rows"]]
        self.blocks, self.size, self._partial = blocks, size, rest
        return end


def _believed(journal: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines up to the first that is not as it was written, and where they end."""
    found, end = list[dict[str, Any]](), 0
    try:
        content = journal.read_bytes()
    except FileNotFoundError:
        return [], 0
    for line in content.splitlines(keepends=True):
        digest, _, text = line.partition(b" ")
        text = text.removesuffix(b"\n")
        if not line.endswith(b"\n") or digest != hashlib.sha256(text).hexdigest().encode():
            break
        found.append(json.loads(text))
        end += len(line)
    return found, end
