"""A report of many trials, in short; `make soak` makes one of 5,000 (`tests/faults/soak.md`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports import large

TRIALS = 150
FIXED, EACH = 1_600_000, 600  # bytes of a page: of its figures, and of a trial
SECONDS = 25.0  # that it computes, on two cores of today


@pytest.mark.slow
def test_a_page_grows_by_little_with_each_trial(tmp_path: Path) -> None:
    large.store(tmp_path, TRIALS)
    found = large.made(tmp_path, TRIALS)
    assert found.page <= FIXED + EACH * TRIALS
    assert FIXED + EACH * large.TRIALS <= large.BYTES
    assert found.computed <= SECONDS < large.SECONDS
