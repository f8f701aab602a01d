"""`ablate data push` where something is in its way."""

from __future__ import annotations

import errno
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ablate.cli.push import pushed
from tests.trainables import core_trials
from trainables.errors import ConfigError


def test_a_full_disk_for_drafts_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "part.tar")

    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    data = core_trials.config(core_trials.draw(tmp_path / "images")).data
    monkeypatch.setattr(tarfile, "open", full)
    with pytest.raises(ConfigError, match="set TMPDIR") as caught:
        pushed(data, str(tmp_path / "there"))
    assert str(caught.value).startswith(tempfile.gettempdir()) and "\n" not in str(caught.value)
    assert not list((tmp_path / "there").rglob("*"))
