"""What may happen to a sweep on a cluster: one of its machines goes."""

from __future__ import annotations

import collections
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ablate.engine.driver_status import list_drivers
from tests.faults.conftest import sweep, whole
from tests.faults.driver import SPEC
from tests.faults.polling import wait_until
from tests.faults.sweeps import Sweep, assert_whole

__all__ = ["sweep", "whole"]  # fixtures
EPOCHS = SPEC["trial"]["training.epochs"]
# Somebody else on the cluster, who fills the store of the node that he is on and keeps it so.
HOG = """
import sys
import numpy, ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
blocks = []
while True:
    try:
        blocks.append(ray.put(numpy.ones(4 << 20, numpy.uint8)))
    except (ObjectStoreFullError, OutOfDiskError) as error:
        print(type(error).__name__, len(blocks), flush=True)
        sys.stdin.read()
"""


def wait_for_a_trial_under_way(epochs: Path, driver: subprocess.Popen[str]) -> None:
    """Until an epoch that is not its trial's last has just been trained, as the file tells."""
    seen = 0

    def is_under_way() -> bool:
        nonlocal seen
        lines = epochs.read_text().splitlines() if epochs.exists() else []
        is_new, seen = len(lines) > seen, len(lines)
        assert driver.poll() is None, driver.communicate()[0]
        return is_new and int(lines[-1].split()[1]) < EPOCHS

    wait_until(is_under_way, "no trial of that node trained an epoch")


@pytest.mark.slow
def test_a_node_that_goes_costs_no_trial(
    cluster: Any, sweep: Sweep, whole: list[dict[str, Any]], tmp_path: Path
) -> None:
    there = tmp_path / "epochs-there"
    node = cluster.add_node(num_cpus=2, env_vars={"SYN_EPOCHS": str(there)})
    process = sweep.start({"address": cluster.address})
    wait_for_a_trial_under_way(there, process)
    (driver,) = list_drivers(sweep.out)
    assert [node.slots for node in driver.nodes] == [2, 2] and driver.slots == 4
    assert len({node.name for node in driver.nodes}) == 2
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
    assert [process.returncode for process in drivers] == [0, 0], "\n".join(texts)
    trained = collections.Counter(t for t, mode, _ in sweep.started() if mode == "train")
    assert set(trained.values()) == {1}, "a trial was trained by both"
    assert_whole(sweep, whole)


@pytest.mark.slow
def test_trials_go_to_nodes_with_the_kind_of_gpu_that_is_asked_for(
    cluster: Any, sweep: Sweep, tmp_path: Path
) -> None:
    """Ray is told of GPUs that are not there, which these trials do not touch."""
    epochs = {kind: tmp_path / kind for kind in ("A100", "H100")}
    for kind, file in epochs.items():
        cluster.add_node(
            num_cpus=2,
            num_gpus=1,
            resources={f"accelerator_type:{kind}": 1},
            env_vars={"SYN_EPOCHS": str(file), "SYN_SLEEP": "0"},
        )
    wanted = {"cpus": 1, "gpus": 0.5, "accelerator": "H100"}
    options = {"address": cluster.address, "device": "cuda", "spec": {"resources": wanted}}
    code, text = sweep.finish(options)
    assert code == 0, text
    assert epochs["H100"].exists() and not epochs["A100"].exists()
    assert not sweep.epochs_file.exists()
    assert {row["status"] for row in sweep.trials().values()} == {"done"}


@pytest.mark.slow
def test_an_object_store_that_is_full_costs_nothing(
    cluster: Any, sweep: Sweep, whole: list[dict[str, Any]]
) -> None:
    """Nor may its node's disk take what is too much: what trials tell goes from process to
    process."""
    hog = subprocess.Popen(
        [sys.executable, "-c", HOG, cluster.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert hog.stdout is not None
        words = hog.stdout.readline().split()
        assert words and int(words[1]) >= 15, words
        code, text = sweep.finish({"address": cluster.address})
        assert hog.poll() is None
    finally:
        hog.kill()
        hog.communicate()
    assert code == 0, text
    assert_whole(sweep, whole)
    assert {mode for _, mode, _ in sweep.started()} >= {"train"}
