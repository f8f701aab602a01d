"""When a node's disk counts as full, and what its worker says then."""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainables.jobs import ray_trainable
from trainables.jobs.nodes import room
from trainables.jobs.ray_trainable import JobTrainable

GIB = 1 << 30
Sizes = dict[str, tuple[int, int]]


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Sizes:
    """Folder's name → bytes free and in all."""
    sizes: Sizes = {}

    def usage(folder: Path) -> Any:
        free, total = sizes.get(Path(folder).name, (500 * GIB, 1000 * GIB))
        return SimpleNamespace(free=free, total=total)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    return sizes


@pytest.mark.parametrize(
    ("free", "total", "lacks"),
    [
        (GIB - 1, 1000 * GIB, True),
        (GIB, 1000 * GIB, False),
        (40, 1000, True),  # of a small one a twentieth
        (50, 1000, False),
    ],
)
def test_how_much_room_is_enough(
    tmp_path: Path, disks: Sizes, free: int, total: int, lacks: bool
) -> None:
    disks[tmp_path.name] = (free, total)
    assert room.lacks_room(tmp_path) is lacks
    assert room.lacks_room(tmp_path / "not" / "there") is lacks


def test_which_folder_is_full(tmp_path: Path, disks: Sizes) -> None:
    cache, other = tmp_path / "cache", tmp_path / "other"
    for folder in (cache, other):
        folder.mkdir()
    full = OSError(errno.ENOSPC, "No space left on device")
    assert room.full_folder(full, (other, cache)) is None, "it was the disk of something else"
    disks["cache"] = (0, 1000)
    assert room.full_folder(full, (other, cache)) == cache
    try:
        raise RuntimeError("while it was at it") from full
    except RuntimeError as error:
        assert room.full_folder(error, (other, cache)) == cache
    assert room.full_folder(OSError(errno.EIO, "a bad moment"), (cache,)) is None


def test_a_slot_is_held_until_there_is_room(
    tmp_path: Path, disks: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks[tmp_path.name] = (0, 1000)
    looks: list[float] = []

    def look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            del disks[tmp_path.name]

    monkeypatch.setattr(time, "sleep", look)
    room.hold(str(tmp_path))
    assert looks == [room.LOOK_SECONDS] * 3


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A worker whose trial ends with an error."""

    def make(error: Exception) -> JobTrainable:
        def events(_: float) -> None:
            raise error

        actor: Any = JobTrainable.__new__(JobTrainable)
        runtime = SimpleNamespace(cache_dir=tmp_path / "cache")
        actor._carried = SimpleNamespace(apart=False, job=SimpleNamespace(runtime=runtime))
        actor._envelope = SimpleNamespace(gather=1.0, beside=())
        actor._attempt = SimpleNamespace(events=events)
        return actor  # type: ignore[no-any-return]

    monkeypatch.setattr(ray_trainable, "node_id", lambda: "id")
    monkeypatch.setattr(ray_trainable, "HELD_SECONDS", 0.0)
    (tmp_path / "cache").mkdir()
    yield make


def test_a_worker_says_that_its_disk_is_full_before_it_ends(
    tmp_path: Path, disks: Sizes, worker: Callable[..., Any]
) -> None:
    disks["cache"] = (0, 1000)
    actor = worker(OSError(errno.ENOSPC, "No space left on device"))
    told = actor.step()
    assert (told["full"], told["done"], told["node"]) == (str(tmp_path / "cache"), False, "id")
    assert json.loads(told["events"]) == []
    with pytest.raises(OSError, match=r"node .*: \[Errno 28\] No space left on device"):
        actor.step()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_other_errors_end_it_at_once(disks: Sizes, worker: Callable[..., Any], code: int) -> None:
    actor = worker(OSError(code, "a bad moment"))
    with pytest.raises(OSError, match="a bad moment"):
        actor.step()
