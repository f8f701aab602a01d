"""A first pass that is killed goes on, and ends in the bytes of one that was left in peace."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainables.data.first_pass import begin, kept, kill_after
from tests.trainables.data.trees import photographs
from trainables.config.images import DataConfig
from trainables.data.cache import JOURNAL, begun, published
from trainables.data.dataset import load_dataset
from trainables.data.files import first_pass, hashes, store
from trainables.data.files.first_pass import GrowingFile
from trainables.machine import digests

ROWS = [bytes([number]) * (7 * number + 1) for number in range(40)]


def fill(folder: Path, rows: list[bytes], until: int | None = None) -> None:
    with GrowingFile(folder, "a.bin", 1) as out:
        for number, row in enumerate(rows[len(out.rows) : until], len(out.rows)):
            out.add(row, number)
    np.save(folder / "table.npy", np.array(out.rows))


def interrupt(folder: Path, after: int) -> None:
    """As by a Ctrl-C."""

    def build(fresh: Path) -> None:
        fill(fresh, ROWS, after)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        published(folder, build, goes_on=True)
    assert not folder.exists() and begun(folder).is_dir()


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    found = contents(published(tmp_path / "whole", lambda f: fill(f, ROWS), goes_on=True))
    assert found["a.bin"] == b"".join(ROWS) and JOURNAL not in found
    assert digests.damage(tmp_path / "whole") is None
    return found


@pytest.mark.parametrize("after", [0, 1, 17, 40])
def test_what_was_done_is_not_done_again(
    after: int, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    interrupt(tmp_path / "set", after)
    left = [b"" if number < after else row for number, row in enumerate(ROWS)]
    published(tmp_path / "set", lambda f: fill(f, left), goes_on=True)
    assert contents(tmp_path / "set") == whole
    assert not begun(tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("spoil", "believed"),
    [
        (lambda data, journal: data.write_bytes(data.read_bytes()[:-1]), 29),
        (lambda data, journal: data.write_bytes(data.read_bytes() + b"torn"), 30),
        (lambda data, journal: data.unlink(), 0),
        (lambda data, journal: journal.unlink(), 0),
        (lambda data, journal: journal.write_bytes(journal.read_bytes()[:-5]), 29),
        (lambda data, journal: journal.write_bytes(journal.read_bytes() + bytes(64)), 30),
    ],
)
def test_what_was_left_damaged_is_not_believed(
    spoil: Any, believed: int, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    interrupt(tmp_path / "set", 30)
    folder = begun(tmp_path / "set")
    spoil(folder / "a.bin", folder / JOURNAL)
    with GrowingFile(folder, "a.bin", 1) as out:
        assert len(out.rows) == believed
    published(tmp_path / "set", lambda f: fill(f, ROWS), goes_on=True)
    assert contents(tmp_path / "set") == whole


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def broken(fresh: Path) -> None:
        fill(fresh, ROWS, 5)
        raise OSError(28, "full")

    with pytest.raises(OSError, match="while writing the cache"):
        published(tmp_path / "set", broken, goes_on=True)
    assert [file.name for file in tmp_path.iterdir()] == ["set.lock"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pixels", "encoded"])
def test_a_first_pass_killed_at_some_instants(kind: str, tmp_path: Path) -> None:
    root = photographs(tmp_path / "photographs", 300)
    process = begin(root, tmp_path / "whole", kind)
    assert not kill_after(process, 600)
    killed = 0
    for seconds in (0.05, 0.1, 0.15, 0.2):
        process = begin(root, tmp_path / "killed", kind)
        if not kill_after(process, seconds):
            break
        killed += 1
    assert killed >= 2, "it was never under way"
    process = begin(root, tmp_path / "killed", kind)
    assert not kill_after(process, 600)
    assert kept(tmp_path / "killed") == kept(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["pixels", "encoded"])
def test_images_that_are_there_are_not_decoded_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = photographs(tmp_path / "photographs", 60)
    config = DataConfig(name="folder", root=str(root), image_size=64, store=kind)
    read: list[str] = []
    add, ahead = GrowingFile.add, first_pass.ahead

    def some(self: GrowingFile, content: bytes, *numbers: int) -> None:
        if len(self.rows) == 40:
            raise KeyboardInterrupt
        add(self, content, *numbers)

    monkeypatch.setattr(GrowingFile, "add", some)
    with pytest.raises(KeyboardInterrupt):
        load_dataset(config, tmp_path / "cache")
    monkeypatch.setattr(GrowingFile, "add", add)

    def watched(work: Any, pictures: Any) -> Any:
        return ahead(work, (read.append(each.path.name) or each for each in pictures))

    monkeypatch.setattr(store, "ahead", watched)
    load_dataset(config, tmp_path / "cache")
    assert len(read) == 20
    load_dataset(config, tmp_path / "other")
    assert kept(tmp_path / "cache") == kept(tmp_path / "other")


def test_hashes_are_written_down_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = photographs(tmp_path / "photographs", 30, classes=1)
    names = [file.relative_to(root).as_posix() for file in sorted(root.rglob("*.jpg"))]
    monkeypatch.setattr(hashes, "SECONDS", 0.0)
    monkeypatch.setattr(hashes, "SPARED", 0)
    monkeypatch.setattr(hashes, "AT_ONCE", 5)
    (root / names[20]).rename(tmp_path / "away")
    with pytest.raises(ValueError, match="readable image"):
        hashes.file_hashes(root, names, tmp_path / "cache")
    (tmp_path / "away").rename(root / names[20])
    read: list[str] = []
    digest = hashes.hashlib.file_digest

    def watched(file: Any, kind: str) -> Any:
        read.append(file.name)
        return digest(file, kind)

    monkeypatch.setattr(hashes.hashlib, "file_digest", watched)
    found = hashes.file_hashes(root, names, tmp_path / "cache")
    assert len(read) == 10 and len(found) == 30


def test_progress_is_said_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trainables.machine.progress.FIRST", 0.0)
    monkeypatch.setattr("trainables.machine.progress.LEAST", 0.0)
    root = photographs(tmp_path / "photographs", 20)
    config = DataConfig(name="folder", root=str(root), image_size=64, store="pixels")
    with caplog.at_level(logging.INFO, "trainables.progress"):
        load_dataset(config, tmp_path / "cache")
    lines = [text for text in caplog.messages if text.startswith("decoding ")]
    counts = [int(text.partition(": ")[2].split()[0]) for text in lines]
    assert counts and all(one < other for one, other in pairwise(counts))
    assert all("of 20 images, " in text and "a second" in text for text in lines)
