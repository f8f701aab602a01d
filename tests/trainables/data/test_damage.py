"""A byte that is another one on disk is found before a number is made of it."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainables import core_trials
from tests.trainables.core_trials import comparable, job
from tests.unprivileged import open_folder, unprivileged
from trainables.config.images import DataConfig
from trainables.data import cache
from trainables.data.cache import published
from trainables.data.dataset import fingerprint
from trainables.jobs.job import run_job
from trainables.machine import digests


def flip(path: Path, at: int) -> None:
    """One byte; the time of the content is put back, as a failing disk leaves it."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncate(path: Path, by: int) -> None:
    os.truncate(path, path.stat().st_size - by)


def half(path: Path) -> int:
    return path.stat().st_size // 2


Trial = Callable[[Path], dict[str, Any]]  # a folder with a cache → what a trial comes to


@pytest.fixture(scope="module")
def trial(drawn: Path) -> Trial:
    def run(folder: Path) -> dict[str, Any]:
        config = core_trials.config(drawn, training={"epochs": 1})
        event: dict[str, Any] = list(run_job(job(config, folder / "cache", folder / "trial")))[-1]
        return event

    return run


@pytest.fixture(scope="module")
def whole(trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A filled cache, and what the trial came to that filled it."""
    folder = tmp_path_factory.mktemp("whole")
    return folder / "cache", trial(folder)


@pytest.mark.parametrize(
    ("place", "spoil"),
    [
        ("features/*/features.npy", lambda path: flip(path, half(path))),
        ("features/*/features.npy", lambda path: flip(path, 2)),  # the header
        ("features/*/features.npy", lambda path: truncate(path, 64)),
        ("features/*/digests.json", lambda path: flip(path, half(path))),
        ("folder/*/pixels.bin", lambda path: flip(path, half(path))),
        ("folder/*/table.npy", lambda path: flip(path, -8)),
        ("folder/*/table.npy", Path.unlink),
    ],
)
def test_a_damaged_store_is_made_again_and_the_numbers_are_the_same(  # noqa: PLR0917
    place: str,
    spoil: Callable[[Path], object],
    whole: tuple[Path, dict[str, Any]],
    trial: Trial,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shutil.copytree(whole[0], tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob(place)
    before = path.read_bytes()
    spoil(path)
    with caplog.at_level(logging.WARNING, "trainables"):
        found = trial(tmp_path)
    assert path.read_bytes() == before
    assert comparable(found) == comparable(whole[1])
    (line,) = caplog.messages
    assert line.startswith(f"{path.parent}: {path.name} ") and line.endswith("it is made again")


def test_what_is_whole_is_left_alone(
    whole: tuple[Path, dict[str, Any]],
    trial: Trial,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shutil.copytree(whole[0], tmp_path / "cache")
    inodes = {path: path.stat().st_ino for path in (tmp_path / "cache").rglob("*.npy")}
    with caplog.at_level(logging.WARNING, "trainables"):
        assert comparable(trial(tmp_path)) == comparable(whole[1])
    assert not caplog.messages
    assert {path: path.stat().st_ino for path in inodes} == inodes


def fill(fresh: Path) -> None:
    (fresh / "a.bin").write_bytes(bytes(range(250)))
    (fresh / "b.bin").write_bytes(b"")


def never(fresh: Path) -> None:
    raise AssertionError("built again")


def test_any_byte_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "BLOCK", 100)
    folder = published(tmp_path / "set", fill)
    assert digests.damage(folder) is None
    for name in ("a.bin", digests.MANIFEST):
        for at in range(0, (folder / name).stat().st_size, 3):
            flip(folder / name, at)
            assert name in str(digests.damage(folder))
            flip(folder / name, at)
    flip(folder / "a.bin", 220)
    assert digests.damage(folder) == "a.bin is not as it was written, in the block from byte 200"
    published(folder, fill)
    assert digests.damage(folder) is None


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that are read whole."""
    seen: list[Path] = []

    def damage(folder: Path) -> str | None:
        seen.append(folder)
        return digests.damage(folder)

    monkeypatch.setattr(cache, "damage", damage)
    return seen


def test_processes_rely_on_a_check_for_an_hour(tmp_path: Path, read: list[Path]) -> None:
    folder = published(tmp_path / "set", fill)
    read.clear()
    for _ in range(3):
        cache._checked.clear()  # as another process
        published(folder, never)
    assert not read
    note = tmp_path / "set.checked"
    os.utime(note, (0, note.stat().st_mtime - 4000))
    cache._checked.clear()
    published(folder, never)
    published(folder, never)
    assert read == [folder]


def test_what_changes_meanwhile_is_found(tmp_path: Path) -> None:
    folder = published(tmp_path / "set", fill)
    published(folder, never)
    flip(folder / "a.bin", 7)
    assert (published(folder, fill) / "a.bin").read_bytes() == bytes(range(250))


def test_a_cache_that_is_only_read_is_checked_too(read: list[Path]) -> None:
    with open_folder() as top:
        folder = published(top / "cache" / "set", fill)
        for path in (top / "cache", folder):
            path.chmod(0o755)
        with unprivileged():
            assert published(folder, never) == folder
        flip(folder / "a.bin", 0)
        with unprivileged(), pytest.raises(PermissionError, match="while writing the cache"):
            published(folder, fill)


def test_a_damaged_list_of_known_files_is_no_other_data_set(drawn: Path, tmp_path: Path) -> None:
    config = DataConfig(name="folder", root=str(drawn))
    first = fingerprint(config, tmp_path)
    (index,) = (tmp_path / "folder").glob("hashes-*.json")
    for at in (3, half(index), -10):
        flip(index, at)
        assert fingerprint(config, tmp_path) == first
