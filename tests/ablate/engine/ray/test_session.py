"""Ray's own files stand where no other user can come, whoever was there first."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from ablate.engine.ray.session import (
    INNER,
    LOCK,
    choose_temporary_folder,
    remove_dead_folders,
)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With a short path, which sockets ask for."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


def test_a_folder_of_each_run_which_nobody_else_may_enter(place: Path) -> None:
    with choose_temporary_folder() as first, choose_temporary_folder() as second:
        assert first != second and first.name == INNER and first.parent.parent == place
        assert stat.S_IMODE(first.parent.lstat().st_mode) == 0o700
    assert not list(place.iterdir())
    with pytest.raises(RuntimeError), choose_temporary_folder():
        raise RuntimeError("Ray is gone")
    assert len(list(place.iterdir())) == 1, "its logs tell why"


def make_folder(place: Path, name: str, *, age: float = 3600.0, lock: bool = True) -> Path:
    folder = place / name
    folder.mkdir()
    if lock:
        (folder / LOCK).touch()
    os.utime(folder, (time.time() - age,) * 2)
    return folder


def test_only_folders_of_runs_that_are_gone_are_deleted(tmp_path: Path) -> None:
    live = make_folder(tmp_path, "ray-live")
    link = tmp_path / "ray-link"
    target = make_folder(tmp_path, "elsewhere")
    link.symlink_to(target)
    others = [
        link,
        target,
        make_folder(tmp_path, "ray-new", age=0.0),  # it may be starting
        make_folder(tmp_path, "ray-foreign", lock=False),
    ]
    dead = make_folder(tmp_path, "ray-dead")
    with FileLock(live / LOCK):
        remove_dead_folders(tmp_path)
        assert live.exists() and not dead.exists() and all(path.exists() for path in others)
    remove_dead_folders(tmp_path)
    assert not live.exists()
    remove_dead_folders(tmp_path / "absent")
