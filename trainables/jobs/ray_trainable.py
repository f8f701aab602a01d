"""The Ray side of a trial: a class Trainable whose actor runs one job after another.

The only file of this package that imports Ray. A job arrives as the path of an `Envelope`, in the
trial's folder, in `config["envelope"]`, and each step returns `{"events": JSON text, "done":
bool, "node": Ray's id of this machine, "apart": bool}`. A path and a text, because Ray copies,
keeps and flattens every mapping that it sees.

With `config["marker"]`, a file of the driver's, a node that does not see it is apart: it has the
envelope from Ray's own table, where it is kept as long as the trial is under way (`post`).
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.experimental import internal_kv

from trainables.jobs.attempt import Attempt, Event, limit_threads
from trainables.jobs.nodes.carried import Carried
from trainables.jobs.nodes.envelope import Envelope, Leader
from trainables.jobs.nodes.store import here
from trainables.machine.processes import host_name, runs

DRIVER_SECONDS = 1.0
STOP_SECONDS = 5.0  # that a trial which is stopped waits for a storage that is away
TABLE = b"ablate"

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


def word_of(marker: str, path: str) -> str:
    """Under which an envelope is posted: of this run alone, as its marker is."""
    return f"{Path(marker).name}/{Path(path).parent.name}/{Path(path).name}"


def post(word: str, text: str | None) -> None:
    """A text for whoever has joined this Ray; None: no longer."""
    if text is None:
        internal_kv._internal_kv_del(word, namespace=TABLE)
    else:
        internal_kv._internal_kv_put(word, text, namespace=TABLE)


def _taken(config: dict[str, Any]) -> tuple[Envelope, bool]:
    """The envelope, and whether this node is apart. Raises OSError: it cannot have the job."""
    path, marker = config["envelope"], config.get("marker")
    if marker is not None and not os.access(marker, os.F_OK):  # or it may not be seen
        text = internal_kv._internal_kv_get(word_of(marker, path), namespace=TABLE)
        if text is None:
            raise OSError(f"node {here()}: the trial was taken back before it began here")
        return Envelope.parse(text.decode()), True
    try:
        return Envelope.read(Path(path)), False
    except FileNotFoundError as error:
        raise OSError(
            f"node {here()}: found no {path}; expected the driver's --out, which all nodes see. "
            "Give a folder that they share, or --storage URI, by which they need not"
        ) from error


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
