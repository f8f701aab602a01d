"""What may happen to a sweep on a cluster: one of its machines goes."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_driver import Sweep, assert_whole, sweep, whole

__all__ = ["sweep", "whole"]  # fixtures


@pytest.fixture
def cluster(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of one core each, on this machine."""
    from ray.cluster_utils import Cluster

    # A node's workers have its environment, not the driver's.
    for name, value in {"SYN_STARTS": sweep.starts, "SYN_EPOCHS": sweep.epochs_file,
                        "SYN_SLEEP": "0.8", "OMP_NUM_THREADS": "1",
                        "RAY_health_check_initial_delay_ms": "0",
                        "RAY_health_check_period_ms": "1000"}.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        yield made
    finally:
        made.shutdown()


@pytest.mark.slow
def test_a_node_that_goes_costs_no_trial(
    cluster: Any, sweep: Sweep, whole: list[dict[str, Any]], tmp_path: Path
) -> None:
    node = cluster.add_node(num_cpus=1)
    process = sweep.start({"address": cluster.address})
    sweep.wait_for_starts(6, process)  # a round's three trials: two at most run on either node
    cluster.remove_node(node, allow_graceful=False)
    text, _ = process.communicate(timeout=200)
    assert process.returncode == 0, text
    assert_whole(sweep, whole)
    trained = collections.Counter(t for t, mode, _ in sweep.started() if mode == "train")
    assert max(trained.values()) > 1, "no trial of that node was begun again"


@pytest.mark.slow
def test_two_drivers_share_two_slots(
    cluster: Any, sweep: Sweep, whole: list[dict[str, Any]]
) -> None:
    """Free workers that one of them kept would be the slots that the other waits for."""
    drivers = [sweep.start({"address": cluster.address}) for _ in range(2)]
    texts = [process.communicate(timeout=200)[0] for process in drivers]
    assert [process.returncode for process in drivers] == [0, 0], texts
    trained = collections.Counter(t for t, mode, _ in sweep.started() if mode == "train")
    assert set(trained.values()) == {1}, "a trial was trained by both"
    assert_whole(sweep, whole)
