"""Ray's own files stand where no other user can come, whoever was there first."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ablate.engine.ray.private import INNER, private_folder
from trainables.errors import ConfigError


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


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
