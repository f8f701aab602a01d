"""Sweeps to interrupt, and the same one whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ablate import api
from ablate.results import build_result_rows, read_frame
from tests.ablate.driven import dispatch, drain
from tests.faults.driver import SPEC, options
from tests.faults.sweeps import Sweep


@pytest.fixture
def sweep(tmp_path: Path, served_programs: Path) -> Iterator[Sweep]:
    made = Sweep(tmp_path, served_programs)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The table of the same sweep, not interrupted, run here without Ray."""
    folder = tmp_path_factory.mktemp("whole")
    plan, _ = api.prepare(SPEC, options(str(folder)))
    made = dispatch(plan, folder)
    drain(made)
    return build_result_rows(read_frame(made.ledger, plan.sweep_id))


@pytest.fixture
def cluster(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A node of two slots on this machine, where others may be added."""
    from ray.cluster_utils import Cluster

    # A node's workers have its environment, not the driver's.
    for name, value in {
        "SYN_STARTS": sweep.starts,
        "SYN_EPOCHS": sweep.epochs_file,
        "SYN_SLEEP": "0.8",
        "OMP_NUM_THREADS": "1",
        "RAY_health_check_initial_delay_ms": "0",
        "RAY_health_check_period_ms": "1000",
        "RAY_local_fs_capacity_threshold": "0.0001",  # no disk has room for objects
    }.items():
        monkeypatch.setenv(name, str(value))
    head = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 80_000_000}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield made
    finally:
        made.shutdown()
