"""Ray's own files stand where no other user can come, whoever was there first."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ablate.engine.ray.private import INNER, OF_RAY, ROOM, private_folder
from trainables.errors import ConfigError


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


def test_what_another_user_may_write_is_not_taken(place: Path) -> None:
    ours = place / f"ray-{os.getuid()}"
    ours.mkdir()
    ours.chmod(0o777)
    found = private_folder()
    assert found.parent != ours and found.parent.parent == place and mode(found.parent) == 0o700


def test_a_link_to_elsewhere_is_not_taken(place: Path) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (place / f"ray-{os.getuid()}").symlink_to(elsewhere)
    found = private_folder()
    assert not found.parent.is_symlink() and found.parent.parent == place


def test_no_place_at_all_is_said_in_one_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(place / "gone"))
    with pytest.raises(ConfigError, match=r"no place for Ray's own files.*RAY_TMPDIR"):
        private_folder()


def test_a_place_too_long_for_sockets_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "/tmp/" + ROOM * "x"
    monkeypatch.setenv("RAY_TMPDIR", long)
    with pytest.raises(ConfigError, match=f"{long}.*too long.*at most {ROOM} bytes"):
        private_folder()


def test_the_usual_place_stands_in_for_one_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + ROOM * "x")
    assert private_folder().is_relative_to("/tmp/")


def test_a_socket_fits_into_the_longest_place() -> None:
    ours = max(f"ray-{os.getuid()}", "ray-12345678", key=len)
    socket = f"{'x' * ROOM}/{ours}/{INNER}{OF_RAY}"
    assert len(socket) == (103 if sys.platform == "darwin" else 107)
