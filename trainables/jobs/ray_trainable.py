"""The Ray side of a trial: a class Trainable whose actor runs one job after another.

The only file of this package that imports Ray. A job arrives as the text of an `Envelope` in
`config[PAYLOAD]`, and each step returns `{"events": JSON text, "done": bool, "node": Ray's id of
this machine, "apart": bool}`. Texts, because Ray copies, keeps and flattens every mapping that it
sees.

With `marker`, a file of the driver's, a node that does not see it is apart.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from typing import Any

import ray
from ray import tune

from trainables.jobs.attempt import Attempt, Event, limit_threads
from trainables.jobs.nodes.carried import Carried
from trainables.jobs.nodes.envelope import Envelope, Leader
from trainables.jobs.nodes.store import here
from trainables.machine.processes import host_name, runs

PAYLOAD = "payload"
DRIVER_SECONDS = 1.0
STOP_SECONDS = 5.0  # that a trial which is stopped waits for a storage that is away

log = logging.getLogger(__name__)
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


def _taken(config: dict[str, Any]) -> tuple[Envelope, bool]:
    """Take the envelope out of a configuration, which Tune would send back with every result.

    Raises:
        OSError: this node does not see the driver's folder, and needs it.
    """
    envelope = Envelope.parse(config.pop(PAYLOAD))
    if envelope.marker:
        return envelope, not os.access(envelope.marker, os.F_OK)  # or it may not be seen
    folder = envelope.job.runtime.trial_dir
    if folder is not None and not folder.parent.is_dir():
        raise OSError(
            f"node {here()}: found no {folder.parent}; expected the driver's --out, which all "
            "nodes see. Give a folder that they share, or --storage URI, by which they need not"
        )
    return envelope, False


class JobTrainable(tune.Trainable):
    """One job at a time; `reset_config` takes the next one in the same process."""

    _attempt: Attempt | None = None
    _said = False  # that this node is apart

    def setup(self, config: dict[str, Any]) -> None:
        self._take(config)
        limit_threads(self._carried.job.runtime.threads)
        watch_driver(self._envelope.driver)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self._take(new_config)
        return True

    def _take(self, config: dict[str, Any]) -> None:
        self._envelope, apart = _taken(config)
        self._carried = Carried(self._envelope, apart=apart)

    def step(self) -> dict[str, Any]:
        if self._carried.apart and not self._said:
            self._said = True  # at once: what others do depends on it
            return self._told([], done=False)
        envelope = self._envelope
        if self._attempt is None:
            self._attempt = Attempt(self._carried.job, envelope.runner, clean=envelope.clean)
            self._carried.begin()
        events = self._attempt.events(envelope.gather)
        done = events[-1]["event"] != "epoch"
        if done:
            self._carried.end()  # before the driver hears of it
            self.cleanup()
        return self._told(events, done=done)

    def _told(self, events: list[Event], *, done: bool) -> dict[str, Any]:
        return {
            "events": json.dumps(events),
            "done": done,
            "node": node_id(),
            "apart": self._carried.apart,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the core keeps its checkpoints in the trial's folder."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: see `save_checkpoint`."""

    def cleanup(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            try:  # before others may enter the folder
                self._carried.end(seconds=STOP_SECONDS)
            except OSError as error:
                log.warning("what trial %s made stays here: %s", attempt.job.trial_id, error)
            finally:
                attempt.close()
            self._carried.leave()
