"""A network that is parted for a while; for a minute in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.parted import apart

SECONDS = 12.0  # twice what it takes to be dead


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_that_was_cut_off_and_comes_back_changes_nothing(tmp_path: Path) -> None:
    apart(tmp_path, SECONDS)
