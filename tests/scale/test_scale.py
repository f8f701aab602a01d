"""The driver on many slots, in little."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scale import drive


def test_many_slots_are_served_by_one_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every trial once, though a tenth of the workers are gone in their first attempt."""
    monkeypatch.setenv("SLOTS_DIE", "0.1")
    meter = drive.drive(200, 30, 2, tmp_path)
    assert meter.counts["ended"] > 5
    assert meter.counts["final"] == 200
    assert meter.counts["record"] >= 200
    costs = meter.costs()
    assert 0 < costs["next"] < costs["trial"]
    assert "tenth" in str(meter)
