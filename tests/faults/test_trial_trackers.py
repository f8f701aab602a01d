"""TensorBoard's files and offline runs of W&B after a driver was killed and interrupted."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from ablate.ledger.ledger import Ledger
from tests.ablate.tracking.replicas import assert_equal_to_ledger
from tests.faults.driver import descendants
from tests.faults.polling import wait_until
from tests.faults.sweeps import Sweep

OPTIONS = {"trackers": ["tensorboard", "wandb"]}


@pytest.mark.slow
def test_a_sweep_that_is_killed_and_interrupted_has_every_point_once(
    sweep: Sweep, tmp_path: Path
) -> None:
    set_up = {"WANDB_MODE": "offline", "HOME": str(tmp_path / "home"), "SYN_SLEEP": "0.7"}
    driver = sweep.start(OPTIONS, **set_up)
    wait_until(lambda: [*sweep.out.rglob("*.wandb")], "no run was opened")
    sweep.wait_for_epochs(3)
    driver.kill()
    driver.wait()
    driver = sweep.start(OPTIONS, **set_up)
    sweep.wait_for_epochs(6)
    (core,) = (each for each in descendants(driver.pid) if "wandb" in each.name())
    core.kill()  # the package's own process, for example where memory ends
    sweep.wait_for_epochs(4)
    driver.send_signal(signal.SIGINT)
    text, _ = driver.communicate(timeout=200)
    assert driver.returncode == 130, text
    code, text = sweep.finish(OPTIONS, **set_up | {"SYN_SLEEP": "0"})
    assert code == 0 and "WARNING" not in text, text
    with Ledger(sweep.out / "ledger.sqlite") as ledger:
        sweep_id = ledger.query("SELECT sweep_id FROM sweeps")[0]["sweep_id"]
    assert assert_equal_to_ledger(sweep.out, sweep_id) == len(sweep.trials()) == 13
