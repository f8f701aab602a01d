"""A file that was replaced is seen, whatever its size and modification time say."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.trainables.data.trees import noise
from trainables.config.images import DataConfig
from trainables.data import archives
from trainables.data.dataset import fingerprint


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """64 pictures of four classes, all of the same number of bytes."""
    for number in range(64):
        noise(tmp_path / "birds" / f"class {number % 4}" / f"{number}.bmp", (8, 8), number)
    return tmp_path / "birds"


@pytest.fixture
def read_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files as they are read."""
    names: list[str] = []
    digest = archives.hashlib.file_digest
    monkeypatch.setattr(
        archives.hashlib,
        "file_digest",
        lambda file, kind: names.append(Path(file.name).name) or digest(file, kind),
    )
    return names


def print_of(root: Path, cache: Path) -> str:
    return fingerprint(DataConfig(name="folder", root=str(root)), cache)


@pytest.mark.parametrize("renames", [False, True])
def test_replaced_pictures_with_their_times_restored(
    root: Path, tmp_path: Path, renames: bool
) -> None:
    before = print_of(root, tmp_path / "cache")
    for path in sorted(root.rglob("*.bmp")):
        stat = path.stat()
        target = path.with_suffix(".new.bmp") if renames else path
        noise(target, (8, 8), int(path.stem) + 1000)
        target.replace(path)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    after = print_of(root, tmp_path / "cache")
    assert after != before and after == print_of(root, tmp_path / "empty")


def test_nodes_with_a_copy_each_share_a_cache(
    root: Path, tmp_path: Path, read_names: list[str]
) -> None:
    """The same path on each node, with other inodes and change times; no node reads twice."""
    first, second = tmp_path / "first", tmp_path / "second"
    root.rename(first)
    shutil.copytree(first, second)
    prints = set()
    for copy in (first, second, first, second):
        copy.rename(root)
        prints.add(print_of(root, tmp_path / "cache"))
        root.rename(copy)
    assert len(prints) == 1 and len(read_names) == 128


def test_an_index_of_0_2_0_is_read_and_the_copies_of_a_file_are_few(
    root: Path, tmp_path: Path, read_names: list[str]
) -> None:
    first, file = print_of(root, tmp_path / "cache"), root / "class 0" / "0.bmp"
    (index,) = (tmp_path / "cache" / "folder").glob("hashes-*.json")
    index.write_bytes(b"0" * 64 + b"\n" + index.read_bytes())
    for second in range(6):
        os.utime(file, (second, second))
        assert print_of(root, tmp_path / "cache") == first
    assert len(read_names) == 64 + 6, "only the file that was touched is read again"
    assert [len(copies) for copies in json.loads(index.read_bytes()).values()] == [4] + 63 * [1]


def test_forgotten_hashes_are_read_anew(root: Path, tmp_path: Path, read_names: list[str]) -> None:
    """A disk that lost a bit leaves size, times and inode as they were."""
    cache = tmp_path / "cache"
    right = print_of(root, cache)
    (index,) = (cache / "folder").glob("hashes-*.json")
    digests = json.loads(index.read_bytes())
    digests[min(digests)][0][1] = "0" * 64
    index.write_text(json.dumps(digests))
    assert print_of(root, cache) != right
    read_names.clear()
    archives.forget_hashes(cache / "folder")
    assert print_of(root, cache) == right and len(read_names) == 64
