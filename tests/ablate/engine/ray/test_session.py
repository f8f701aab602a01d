"""Ray's own files stand where no other user can come, whoever was there first."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest

from ablate.engine.ray.session import create_ray_folder
from trainables.errors import ConfigError


def test_a_folder_of_each_run_which_nobody_else_may_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:  # sockets need a short path
        monkeypatch.setenv("RAY_TMPDIR", parent)
        with create_ray_folder() as first, create_ray_folder() as second:
            assert first != second and Path(first).parent.parent == Path(parent)
            assert stat.S_IMODE(Path(first).parent.lstat().st_mode) == 0o700
        assert not list(Path(parent).iterdir())
    with pytest.raises(ConfigError, match="Set RAY_TMPDIR"), create_ray_folder():
        pass
