"""Ray's own files stand where no other user can come, whoever was there first."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from pathlib import Path

import pytest
from filelock import FileLock

from ablate.engine.ray.session import LOCK, create_ray_folder
from trainables.errors import ConfigError


def test_a_folder_of_each_run_which_nobody_else_may_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:  # sockets need a short path
        monkeypatch.setenv("RAY_TMPDIR", parent)
        with create_ray_folder() as first, create_ray_folder() as second:
            assert first != second and Path(first).parent.parent == Path(parent)
            assert stat.S_IMODE(Path(first).parent.lstat().st_mode) == 0o700
        assert not list(Path(parent).iterdir())
        with pytest.raises(RuntimeError), create_ray_folder():
            raise RuntimeError("Ray is gone")
        assert len(list(Path(parent).iterdir())) == 1, "its logs tell why"
    with pytest.raises(ConfigError, match="Set RAY_TMPDIR"), create_ray_folder():
        pass


def test_only_folders_of_runs_that_are_gone_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    for name, age in (("ray-dead", 3600), ("ray-live", 3600), ("ray-new", 0), ("elsewhere", 3600)):
        (tmp_path / name).mkdir()
        (tmp_path / name / LOCK).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    (tmp_path / "ray-foreign").mkdir()
    with FileLock(tmp_path / "ray-live" / LOCK), create_ray_folder():
        pass
    left = {"ray-live", "ray-new", "ray-foreign", "elsewhere"}
    assert {path.name for path in tmp_path.iterdir()} == left
