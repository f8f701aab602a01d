"""Ray's own files stand where no other user can come, whoever was there first."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from ablate.backends.ray.session import LOCK, check_folders, create_ray_folder
from trainables.words.errors import ConfigError


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


@pytest.fixture
def longest_parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The longest folder that is accepted as RAY_TMPDIR; one byte more is refused."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="p") as folder:
        monkeypatch.setenv("RAY_TMPDIR", f"{folder}/{'x' * 100}")
        with pytest.raises(ConfigError, match="shorter path, such as /tmp") as refused:
            check_folders(None)
        told = re.search(r" has (\d+) bytes, .* room for (\d+)\.", str(refused.value))
        assert told is not None and int(told[1]) == len(os.fsencode(f"{folder}/")) + 100
        assert refused.value.path == "RAY_TMPDIR"
        left = int(told[2]) - len(os.fsencode(f"{folder}/"))
        monkeypatch.setenv("RAY_TMPDIR", f"{folder}/{'x' * (left + 1)}")
        with pytest.raises(ConfigError, match="RAY_TMPDIR"):
            check_folders(None)
        check_folders("10.0.0.7:6379")  # a cluster's sockets are elsewhere
        monkeypatch.setenv("RAY_TMPDIR", f"{folder}/{'x' * left}")
        check_folders(None)
        parent = Path(f"{folder}/{'x' * left}")
        parent.mkdir()
        yield parent


def test_a_path_that_is_too_long_for_sockets_is_refused(longest_parent: Path) -> None:
    assert len(str(longest_parent)) < 40  # Ray adds many letters


def test_a_path_that_ray_does_not_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", "/tmp/é")  # Ray: 'ascii' codec can't encode character
    with pytest.raises(ConfigError, match="other letters than ASCII's"):
        check_folders(None)


def test_a_relative_or_empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    for value, parent in (("here", tmp_path / "here"), ("", Path("/tmp"))):
        monkeypatch.setenv("RAY_TMPDIR", value)
        with create_ray_folder() as folder:
            assert Path(folder).parent.parent == parent


START = """
import os, stat, sys
from ablate.backends.ray.session import create_ray_folder, open_ray_session
from ablate.engine.resources import Request
with create_ray_folder() as folder, open_ray_session(None, Request(1, 0, "cpu"), folder):
    paths = [os.path.join(base, name) for base, _, names in os.walk(folder) for name in names]
    sockets = [path for path in paths if stat.S_ISSOCK(os.lstat(path).st_mode)]
    print(os.getpid(), max(len(os.fsencode(path)) for path in sockets), file=sys.stderr)
"""


@pytest.mark.slow
def test_ray_starts_in_the_longest_folder(longest_parent: Path) -> None:
    """The longest path of a socket is as long as a path may be, for the longest process id."""
    done = subprocess.run(
        [sys.executable, "-c", START], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    pid, length = done.stderr.splitlines()[-1].split()
    longest_pid = Path("/proc/sys/kernel/pid_max").read_text().strip()
    assert int(length) + len(longest_pid) - len(pid) == 107
