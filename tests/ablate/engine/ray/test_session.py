"""Ray's own files stand where no other user can come, whoever was there first."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ablate.engine.ray.session import (
    INNER,
    LOCK,
    OF_RAY,
    ROOM,
    private_folder,
    remove_dead_sessions,
)
from trainables.errors import ConfigError

HOLD = """
import sys
from pathlib import Path
from ablate.engine.ray.session import hold_session
hold_session(Path(sys.argv[1]))
print("held", flush=True)
input()
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With a short path, which sockets ask for."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.lstat().st_mode)


def test_one_folder_for_all_runs_which_nobody_else_may_enter(place: Path) -> None:
    first = private_folder()
    assert first == private_folder() == place / f"ray-{os.getuid()}" / INNER
    assert mode(first.parent) == 0o700


@pytest.mark.parametrize("is_link", [False, True])
def test_what_another_user_may_write_is_not_taken(place: Path, is_link: bool) -> None:
    ours = place / f"ray-{os.getuid()}"
    if is_link:
        (place / "elsewhere").mkdir(mode=0o700)
        ours.symlink_to(place / "elsewhere")
    else:
        ours.mkdir()
        ours.chmod(0o777)
    found = private_folder().parent
    assert found != ours and found.parent == place and mode(found) == 0o700


def test_a_place_too_long_for_sockets_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "/tmp/" + ROOM * "x"
    monkeypatch.setenv("RAY_TMPDIR", long)
    with pytest.raises(ConfigError, match=f"{long}.*too long.*at most {ROOM} bytes"):
        private_folder()


def test_a_socket_fits_into_the_longest_place() -> None:
    ours = max(f"ray-{os.getuid()}", "ray-12345678", key=len)
    socket = f"{'x' * ROOM}/{ours}/{INNER}{OF_RAY}"
    assert len(socket) == (103 if sys.platform == "darwin" else 107)


def make_session(folder: Path, number: int, *, days_old: float = 0.0) -> Path:
    session = folder / f"session_2026-11-24_23-51-33_{number:06d}_{number}"
    (session / "logs").mkdir(parents=True)
    past = time.time() - days_old * 86400
    os.utime(session, (past, past))
    return session


def test_only_sessions_whose_processes_are_gone_are_deleted(tmp_path: Path) -> None:
    live = make_session(tmp_path, 1, days_old=2)
    held = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(live)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert held.stdout is not None and held.stdout.readline()
    kept = [
        live,
        make_session(tmp_path, 2),  # not locked: it may be starting
        tmp_path / "session_of_mine",
        tmp_path / "session_2026-11-24_23-51-33_000009_9",
    ]
    kept[2].mkdir()
    kept[3].symlink_to(tmp_path.parent)
    dead = [make_session(tmp_path, 3), make_session(tmp_path, 4, days_old=2)]
    (dead[0] / LOCK).touch()
    (tmp_path / "session_latest").symlink_to(dead[0])
    remove_dead_sessions(tmp_path)
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in dead)
    assert not (tmp_path / "session_latest").is_symlink()
    held.kill()
    held.communicate()
    remove_dead_sessions(tmp_path)
    assert not live.exists()
    remove_dead_sessions(tmp_path / "absent")
