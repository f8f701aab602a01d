"""What the process that has Ray and the driver agree on."""

from __future__ import annotations

from ablate.engine.ray.pipe import gathers


def test_a_trial_among_many_tells_seldom_but_never_minutes_apart() -> None:
    assert gathers(1) == gathers(100) == 1.0
    assert gathers(1000) == 10.0
    assert gathers(100_000) == 30.0
