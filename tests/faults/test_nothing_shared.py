"""Nodes that share no folder, by way of a store. `make soak` does it with 60 trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.apart import drive
from tests.s3 import CREDENTIALS

TRIALS = 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nodes_that_share_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    drive(tmp_path, TRIALS)
