"""A file that was replaced is seen, whatever its size and modification time say."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate.cli.main import main
from tests.trainables.data.trees import noise
from trainables.config.images import DataConfig
from trainables.core import identity
from trainables.data.dataset import fingerprint
from trainables.data.files import hashes
from trainables.machine.digests import read_sealed_json, seal_json
from trainables.trial import TrialConfig


def draw(path: Path, seed: int) -> None:
    noise(path, (8, 8), seed)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """64 pictures of four classes, all of the same number of bytes."""
    for number in range(64):
        draw(tmp_path / "birds" / f"class {number % 4}" / f"{number}.bmp", number)
    return tmp_path / "birds"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files as they are read."""
    found: list[str] = []
    digest = hashes.hashlib.file_digest

    def watched(file, kind):
        found.append(Path(file.name).name)
        return digest(file, kind)

    monkeypatch.setattr(hashes.hashlib, "file_digest", watched)
    return found


def print_of(root: Path, cache: Path) -> str:
    return fingerprint(DataConfig(name="folder", root=str(root)), cache)


def rewrite(path: Path) -> None:
    draw(path, int(path.stem) + 1000)


def rename_over(path: Path) -> None:
    draw(path.with_suffix(".new.bmp"), int(path.stem) + 1000)
    path.with_suffix(".new.bmp").replace(path)


@pytest.mark.parametrize("replace", [rewrite, rename_over])
def test_replaced_pictures_with_their_times_restored(
    root: Path, tmp_path: Path, replace: Callable[[Path], None]
) -> None:
    trial = TrialConfig.model_validate({"data": {"name": "folder", "root": str(root)}})
    before = print_of(root, tmp_path / "cache")
    for path in sorted(root.rglob("*.bmp")):
        stat = path.stat()
        replace(path)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    after = print_of(root, tmp_path / "cache")
    assert after != before and after == print_of(root, tmp_path / "empty")
    assert identity.compute_config_hash(trial, after) != identity.compute_config_hash(trial, before)


def test_nodes_with_a_copy_each_share_a_cache(root: Path, tmp_path: Path, read: list[str]) -> None:
    """The same path on each node, with other inodes and change times; no node reads twice."""
    here, there = tmp_path / "here", tmp_path / "there"
    root.rename(here)
    shutil.copytree(here, there)
    found = set()
    for copy in (here, there, here, there):
        copy.rename(root)
        found.add(print_of(root, tmp_path / "cache"))
        root.rename(copy)
    assert len(found) == 1 and len(read) == 128


def test_data_check_trusts_nothing(
    root: Path,
    tmp_path: Path,
    read: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A disk that lost a bit leaves size, times and inode as they were."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("ABLATE_CACHE", str(cache))
    right = print_of(root, cache)
    (index,) = (cache / "folder").glob("hashes-*.json")
    known = read_sealed_json(index) or {}
    first = min(known)
    known[first][0][1] = "0" * 64
    index.write_bytes(seal_json(json.loads(json.dumps(known))))
    assert print_of(root, cache) != right
    read.clear()
    sheet = str(tmp_path / "sheet.png")
    assert main(["data", "check", "folder", "--data-root", str(root), "--sheet", sheet]) == 0
    assert f"fingerprint {right[:16]}" in capsys.readouterr().out and len(read) == 64
    assert print_of(root, cache) == right and len(read) == 64
