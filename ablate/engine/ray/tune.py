"""One `Tuner.fit()` for the whole sweep. Ray Tune's searcher, scheduler and callback are thin: they
pass between Tune and the driver, which has `Dispatch` (`ablate/engine/ray/pipe.py` tells how)."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import psutil
import ray.tune
from ray.exceptions import RayActorError
from ray.experimental import internal_kv
from ray.tune import Callback, Stopper
from ray.tune.execution import class_cache
from ray.tune.experiment import Trial
from ray.tune.search import Searcher

from ablate.engine.ray.pipe import Driver
from ablate.engine.ray.resources import Request
from ablate.engine.ray.workers import DriverOnly, KeepWorkers
from trainables.jobs.hidden import hidden
from trainables.jobs.ray_trainable import TABLE, JobTrainable, post, word_of
from trainables.machine.processes import host_name, runs


def tune(
    driver: Driver,
    request: Request,
    storage: Path,
    *,
    name: str,
    keep: int,
    marker: str,
    local: bool,
) -> None:
    """Run what the driver hands out until it has nothing more, or says stop.

    storage: folder for Tune's own files, in it `name`. keep: free workers that are kept. marker: a
    file in the driver's folder, for nodes to tell whether they see that; empty: they are to.
    local: whether this process has started the Ray that it uses.
    """
    keep_secrets()
    if local:
        take_workers_that_wait()
    if marker:
        take_back_of_the_dead()
    workers = KeepWorkers(keep)
    feeder = Feeder(driver, workers, marker)
    tuner = ray.tune.Tuner(
        ray.tune.with_resources(JobTrainable, request.bundle),
        tune_config=ray.tune.TuneConfig(
            search_alg=feeder, scheduler=workers, num_samples=-1, reuse_actors=True
        ),
        run_config=ray.tune.RunConfig(
            name=name,
            storage_path=str(storage),
            stop=StopWhenAsked(driver),
            failure_config=ray.tune.FailureConfig(max_failures=0),  # the driver retries
            callbacks=[Recorder(feeder)],
            verbose=0,
        ),
    )
    tuner.fit()


def keep_secrets() -> None:
    """Tune hands the keys of AWS in its own environment to every trial by way of Ray, which writes
    them on the command lines of workers, for every user of the machine to read. Here workers have
    what their own node has, as with all other credentials."""
    class_cache.ENV_VARS_TO_PROPAGATE -= {
        name for name in class_cache.ENV_VARS_TO_PROPAGATE if name.startswith("AWS_")
    }


def take_workers_that_wait() -> None:
    """Ray starts a worker for each core ahead, and Tune wants none of them: it asks for workers
    with variables of its own, which are started anew, by way of an agent that makes environments.
    Workers of a Ray that was started here have those variables from this process; all that they
    miss is one of Tune's for PyTorch Lightning."""
    class_cache.DEFAULT_ENV_VARS.clear()
    class_cache.ENV_VARS_TO_PROPAGATE.clear()


def take_back_of_the_dead() -> None:
    """Remove the envelopes that killed drivers of this machine have left in a cluster's table,
    which lasts as long as the cluster. Of another machine's nobody here can tell if it lives."""
    for word in internal_kv._internal_kv_list("", namespace=TABLE):
        text = internal_kv._internal_kv_get(word, namespace=TABLE)
        driver = None if text is None else json.loads(text)["driver"]
        if driver is None or driver["host"] != host_name():
            continue
        with suppress(psutil.AccessDenied):  # another user's, which is there
            if not runs(driver["pid"], driver["start"]):
                post(word.decode(), None)


class Feeder(DriverOnly, Searcher):
    """Feeds jobs of all studies into one `fit()` as they become ready. Its state is the
    ledger's, so that Tune's snapshots of it hold nothing."""

    def __init__(self, driver: Driver, workers: KeepWorkers, marker: str = "") -> None:
        super().__init__()
        self.driver, self.workers, self.marker = driver, workers, marker
        self.trials: dict[str, str] = {}  # Tune's id → ours

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        job = self.driver.ask("next")
        if job["envelope"] is None:
            if job["over"]:
                self.workers.end()
            elif job["waits"]:
                self.workers.release(wait=job["idle"])
            return cast(Any, Searcher.FINISHED) if job["over"] else None
        self.trials[trial_id] = job["trial_id"]
        # A file's name: Tune keeps several copies of what it is given, of every trial.
        given = {"envelope": job["envelope"]}
        if self.marker:
            text = Path(job["envelope"]).read_text(encoding="utf-8")
            post(word_of(self.marker, job["envelope"]), text)
            given["marker"] = self.marker
        return given

    def ended(self, trial: Trial) -> str | None:
        """A trial is over: our id of it, of which nothing is kept any more."""
        if self.marker:
            post(word_of(self.marker, trial.config["envelope"]), None)
        return self.trials.pop(trial.trial_id, None)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Events arrive through the callback; here only what ends without a last event."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is the state."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: the ledger is the state."""


class Recorder(DriverOnly, Callback):
    """Results to the driver as they arrive."""

    def __init__(self, feeder: Feeder) -> None:
        self.feeder, self.driver = feeder, feeder.driver

    def on_step_begin(self, iteration: int, trials: list[Any], **_: Any) -> None:
        self.driver.ask("tick")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        ours = self.feeder.trials.get(trial.trial_id)
        # Tune keeps every trial's last result and configuration to its end: not that bulk.
        events = result.pop("events", None)
        if ours is not None and events is not None:
            node, apart = result.get("node"), bool(result.get("apart"))
            self.driver.tell("record", trial_id=ours, events=events, node=node, apart=apart)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        self.feeder.ended(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """The machine ended it. The driver counts retries: Tune counts a worker that died while it
        was free twice, and gives up the trial that is given to it."""
        ours = self.feeder.ended(trial)
        if ours is not None:
            self.driver.tell("ended", trial_id=ours, reason=cause(trial.get_pickled_error()))


class StopWhenAsked(DriverOnly, Stopper):
    """Ends the whole run after a signal; a budget ends it by handing out nothing more."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.driver.stop


def cause(error: BaseException | None) -> str:
    """Why the machine ended a trial, the cause first, in one line."""
    # Of an error of the trial's own this is the last line of its traceback; Ray's words about a
    # process that is gone end with what it knows.
    last = hidden((str(error).strip().splitlines() or [""])[-1].strip())[:300]
    if isinstance(error, RayActorError):
        return f"its process is gone: {last}"
    return last if error is not None and last else "its process ended"
