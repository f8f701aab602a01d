"""Sweeps of unlike priority on one cluster, the higher of which ends, or is killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import sweep
from tests.faults.packing import trial
from tests.faults.sweeps import Sweep

__all__ = ["sweep"]  # a fixture
AHEAD = 4  # trials that Ray Tune claims before a worker is free
LOW = 48
LATE = 2  # slots, which may be given away before a driver has heard of the other


def options(
    cluster: Any, name: str, priority: int, trials: int, packed: int | None = None
) -> dict[str, Any]:
    """A grid of trials that no other name has."""
    rates = [round(1e-4 * (1 + priority) + 1e-7 * i, 9) for i in range(trials)]
    spec = {
        "name": name,
        "seeds": 1,
        "trial": trial(packed) | {"training.epochs": 2},
        "resources": {"cpus": 0.5, "gpus": 0, "priority": priority},
        "studies": {"grid": {"design": "grid", "grid": {"optimizer.lr": rates}}},
    }
    packer = "tests.faults.packing:run_pack"
    return {"address": cluster.address, "spec": spec, "packer": packer}


def another(folder: Path, first: Sweep) -> Sweep:
    """In a folder of its own; workers write what they start into one file, the cluster's."""
    folder.mkdir()
    made = Sweep(folder)
    made.starts = first.starts
    return made


def wait_for_start(first: Sweep, of: Sweep, count: int) -> None:
    """Until so many trials of one sweep have started."""
    end = time.monotonic() + 120
    while True:
        known = set(of.trials()) if (of.out / "ledger.sqlite").exists() else set()
        if len(known & {trial for trial, *_ in first.started()}) >= count:
            return
        assert time.monotonic() < end and of.processes[-1].poll() is None
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [None, 3])
def test_a_sweep_of_higher_priority_gets_slots_first(
    cluster: Any, sweep: Sweep, tmp_path: Path, packed: int | None
) -> None:
    low = sweep.start(options(cluster, "low", 0, LOW, packed))
    wait_for_start(sweep, sweep, 2)
    high = another(tmp_path / "high", sweep)
    code, text = high.finish(options(cluster, "high", 1, 10))
    assert code == 0, text
    before = [trial for trial, *_ in sweep.started()]
    ours, theirs = set(sweep.trials()), set(high.trials())
    begun = [number for number, trial in enumerate(before) if trial in theirs]
    between = [trial for trial in before[begun[0] : begun[-1]] if trial in ours]
    assert len(begun) == 10 and len(between) <= (AHEAD + LATE) * (packed or 1), before
    killed = another(tmp_path / "killed", sweep)
    driver = killed.start(options(cluster, "killed", 2, 10))
    wait_for_start(sweep, killed, 1)
    driver.kill()
    driver.wait()
    told, _ = low.communicate(timeout=120)
    assert low.returncode == 0, told
    assert len(set(sweep.trials())) == LOW
    assert {row["status"] for row in sweep.trials().values()} == {"done"}
    assert told.count("slots go to a sweep of higher priority first") == 2
    assert told.count("no sweep of higher priority waits") == 2
