"""The actor of a trial, as far as it needs no Ray that runs."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainables.jobs import ray_trainable
from trainables.jobs.nodes.envelope import Envelope
from trainables.jobs.ray_trainable import JobTrainable


def test_a_marker_that_may_not_be_looked_at_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = str(tmp_path / "closed" / "marker")
    stat = os.stat

    def refused(path: Any, **more: Any) -> os.stat_result:
        if str(path) == marker:
            raise PermissionError(13, "Permission denied", marker)
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", refused)
    envelope = SimpleNamespace(marker=marker)
    monkeypatch.setattr(Envelope, "parse", lambda _: envelope)
    config = {"payload": "text"}
    taken: Any = ray_trainable._taken(config)
    assert taken == (envelope, True) and config == {}


def test_a_trial_s_folder_is_locked_until_its_files_are_in_storage() -> None:
    done: list[str] = []

    def noted(name: str) -> Any:
        return lambda **_: done.append(name)

    actor = JobTrainable.__new__(JobTrainable)
    actor._attempt = SimpleNamespace(close=noted("unlock"))  # type: ignore[assignment]
    actor._carried = SimpleNamespace(end=noted("store"), leave=noted("leave"))  # type: ignore[assignment]
    actor.cleanup()
    assert done == ["store", "unlock", "leave"]
