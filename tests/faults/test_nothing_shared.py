"""Nodes that share no folder but a store, and one that is cut off; longer in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.apart import drive
from tests.faults.parted import compare_cut_sweep
from tests.s3 import CREDENTIALS

TRIALS = 12
SECONDS = 12.0  # of a cut: twice what it takes until a node counts as dead


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nodes_that_share_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    drive(tmp_path, TRIALS, ["second"])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_that_was_cut_off_and_comes_back_changes_nothing(tmp_path: Path) -> None:
    compare_cut_sweep(tmp_path, SECONDS)
