"""Real trials, the real tracker and the command line, with the driver killed again and again.

`make soak` is its long form.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from tests.faults.killed import MORE, SPEC, Run, assert_same

KILLS = 2


@pytest.mark.slow
@pytest.mark.usefixtures("preloaded_trials")
@pytest.mark.timeout(1800)
def test_sigkill_at_random_instants_changes_nothing(tmp_path: Path) -> None:
    whole, run = Run(tmp_path / "whole"), Run(tmp_path / "killed")
    whole.finish(MORE)
    draw = random.Random(20261121)
    while run.kills < KILLS:
        run.kill(SPEC if run.kills < KILLS - 1 else MORE, draw)
        assert run.ended <= KILLS, "it ends before it is killed"
    run.finish(MORE)
    assert assert_same(run, whole) > 1000
    # With a checkpoint each epoch, a kill costs a running trial at most the epoch it was in.
    for trial, epochs in run.trained().items():
        again = [(a, b) for a, b in itertools.pairwise(epochs) if b <= a]
        assert all(a == b for a, b in again), f"{trial} went back further: {again}"
        assert len(again) <= KILLS
