"""The Ray side of a trial: a class Trainable whose actor runs one job after another.

The only file of this package that imports Ray. A job arrives as the path of an `Envelope`, in the
trial's folder, in `config["envelope"]`, and each step returns `{"events": JSON text, "done":
bool, "node": Ray's id of this machine}`. A path and a text, because Ray copies, keeps and flattens
every mapping that it sees.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune

from trainables.jobs.attempt import Attempt, limit_threads
from trainables.jobs.envelope import Envelope, Leader
from trainables.machine.processes import host_name, runs

STEP_SECONDS = 1.0
DRIVER_SECONDS = 1.0

_watched: list[Leader] = []


def watch_driver(driver: Leader) -> None:
    """End this process as soon as the driver is gone: an orphan must not go on writing into a
    trial folder that the next driver resumes. Ray's own clean-up takes seconds longer.
    """
    if driver.host != host_name() or _watched:
        return
    _watched.append(driver)

    def watch() -> None:
        while runs(driver.pid, driver.start):
            time.sleep(DRIVER_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="driver watch").start()


def node_id() -> str:
    return str(ray.get_runtime_context().get_node_id())


def _read(config: dict[str, Any]) -> Envelope:
    return Envelope.read(Path(config["envelope"]))


class JobTrainable(tune.Trainable):
    """One job at a time; `reset_config` takes the next one in the same process."""

    _attempt: Attempt | None = None

    def setup(self, config: dict[str, Any]) -> None:
        self._envelope = _read(config)
        limit_threads(self._envelope.job.runtime.threads)
        watch_driver(self._envelope.driver)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self._envelope = _read(new_config)
        return True

    def step(self) -> dict[str, Any]:
        if self._attempt is None:
            envelope = self._envelope
            self._attempt = Attempt(envelope.job, envelope.runner, clean=envelope.clean)
        events = self._attempt.events(STEP_SECONDS)
        done = events[-1]["event"] != "epoch"
        if done:
            self.cleanup()
        return {"events": json.dumps(events), "done": done, "node": node_id()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the core keeps its checkpoints in the trial's folder."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: see `save_checkpoint`."""

    def cleanup(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.close()
