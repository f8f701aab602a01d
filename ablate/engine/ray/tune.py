"""Run one `Tuner.fit()` for the whole sweep.

Searcher, callback and stopper only pass messages between Ray Tune and the driver, which has the
`JobScheduler` (`ablate/engine/ray/pipe.py`). A job travels as text in the trial's configuration,
and its events come back as results.
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path, PurePosixPath
from typing import Any, cast

import ray.tune
from ray.exceptions import RayActorError
from ray.tune import Callback, Stopper
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from ablate.engine.ray.pipe import DriverClient
from ablate.engine.ray.resources import Request
from trainables.core.trial_folder import TRIALS
from trainables.jobs.ray_trainable import PAYLOAD, JobTrainable
from trainables.jobs.redaction import redact_secrets

OURS = "trial"  # in a trial's configuration: our id of it
CHECKPOINTS = 2  # of an attempt that stay
AHEAD = 4  # trials that are claimed before a slot is free for them
WAIT_SECONDS = 1.0  # between two questions for a job while others have all that is left
CLOUD_KEYS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SECURITY_TOKEN",
    "AWS_SESSION_TOKEN",
)


def start_tune(
    driver: DriverClient, request: Request, folder: Path, name: str, storage: str | None
) -> None:
    """Run the driver's jobs until it has no more or asks to stop.

    If all remaining trials belong to other drivers, `fit` ends, which releases the workers' slots.

    Args:
        folder: of Tune's files, in a subfolder `name`.
        storage: path or URI in which Tune keeps its files, and checkpoints of trials below
            `trials/`; None keeps no checkpoints.
    """
    do_not_propagate_aws_credentials()
    job: dict[str, Any] | None = None
    for number in itertools.count():
        feeder = JobSearcher(driver, job)
        ray.tune.Tuner(
            ray.tune.with_resources(JobTrainable, request.bundle),
            tune_config=ray.tune.TuneConfig(
                search_alg=feeder,
                scheduler=StartAll(driver),
                num_samples=-1,
                reuse_actors=True,
                # of one attempt's checkpoints (`ablate/storage/checkpoints.py`)
                trial_dirname_creator=lambda trial: f"{trial.config[OURS]}.{time.time_ns()}",
            ),
            run_config=ray.tune.RunConfig(
                name=f"{name}-{number}" if storage is None else TRIALS,
                storage_path=str(folder) if storage is None else storage,
                stop=StopOnRequest(driver),
                checkpoint_config=ray.tune.CheckpointConfig(
                    num_to_keep=CHECKPOINTS,
                    checkpoint_at_end=False,  # steps ask
                ),
                failure_config=ray.tune.FailureConfig(max_failures=0),  # the driver retries
                callbacks=[ResultCallback(feeder)],
                verbose=0,
            ),
        ).fit()
        job = None
        while feeder.waits and job is None and not driver.stop:
            time.sleep(WAIT_SECONDS)
            answer = driver.request("next")
            job = None if answer["payload"] is None else answer
            feeder.waits = not answer.get("over", False)
        if job is None:
            return


def do_not_propagate_aws_credentials() -> None:
    """Hide AWS keys from Tune, which would copy them from `os.environ` to workers' command lines.

    pyarrow still reads them from the C library's environment. Workers use the credentials of their
    node.
    """
    for name in CLOUD_KEYS:
        value = os.environ.pop(name, None)
        if value is not None:
            os.putenv(name, value)


class DriverOnly:
    """Base of objects that Tune pickles for a restore that is never used: pickle nothing."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class JobSearcher(DriverOnly, Searcher):
    """Give Tune jobs of all studies as they become ready. Its state is in the ledger.

    Attributes:
        job: the first answer to "next", received before `fit`.
        waits: whether `fit` ended because all remaining trials belong to other drivers.
    """

    def __init__(self, driver: DriverClient, job: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.driver, self.waits = driver, False
        self._job = job
        self.trials: dict[str, str] = {}  # Tune's id → ours

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if len(self.trials) >= self.driver.slots + AHEAD:
            return None
        answer, self._job = self._job or self.driver.request("next"), None
        if answer["payload"] is None:
            self.waits = answer["idle"] and not answer["over"]
            return cast(Any, Searcher.FINISHED) if answer["over"] or self.waits else None
        self.trials[trial_id] = answer["trial_id"]
        return {PAYLOAD: answer["payload"], OURS: answer["trial_id"]}

    def drop_trial(self, trial: Trial) -> str | None:
        """Return our id of a finished trial, and drop what Tune keeps of it."""
        trial.config.clear()
        trial.evaluated_params.clear()
        trial.experiment_tag = ""  # Tune makes it of the whole configuration
        return self.trials.pop(trial.trial_id, None)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Do nothing, because the callback passes events on."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, because the state is in the ledger."""

    restore = save

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Do nothing, because the state is in the ledger."""


class ResultCallback(DriverOnly, Callback):
    """Pass results to the driver as they arrive."""

    def __init__(self, feeder: JobSearcher) -> None:
        self.feeder, self.driver = feeder, feeder.driver

    def on_step_begin(self, iteration: int, trials: list[Any], **_: Any) -> None:
        self.driver.request("tick")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        trial_id = self.feeder.trials.get(trial.trial_id)
        # Tune keeps every trial's last result to its end: not that bulk.
        events = result.pop("events", None)
        if trial_id is not None and events is not None:
            self.driver.send("record", trial_id=trial_id, events=events, node=result["node"])

    def on_checkpoint(
        self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **_: Any
    ) -> None:
        trial_id = self.feeder.trials.get(trial.trial_id)
        if trial_id is not None:
            checkpoint_path = "/".join(
                PurePosixPath(checkpoint.path).parts[-3:]
            )  # below the storage's root
            self.driver.send("stored", trial_id=trial_id, checkpoint=checkpoint_path)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        self.feeder.drop_trial(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Report a trial that the machine ended. The driver counts retries, because Tune counts a
        worker that dies while it is free twice.
        """
        trial_id = self.feeder.drop_trial(trial)
        if trial_id is not None:
            self.driver.send(
                "ended", trial_id=trial_id, reason=find_cause(trial.get_pickled_error())
            )


class StartAll(DriverOnly, FIFOScheduler):
    """Schedule trials first come, first served, and let all workers start.

    Tune gives a free worker to the oldest waiting trial, even if that trial's own worker is
    starting, and then ends that worker. If trials are shorter than a start, a second worker never
    comes up. So this skips as many of the oldest trials as there are slots besides those of running
    trials and the free worker.
    """

    def __init__(self, driver: DriverClient) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.driver = driver
        self._order: dict[str, int] = {}

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        self._order[trial.trial_id] = len(self._order)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        live = tune_controller.get_live_trials()
        waiting = [trial for trial in live if trial.status == Trial.PENDING]
        waiting.sort(key=lambda trial: self._order[trial.trial_id])
        starting = self.driver.slots - (len(live) - len(waiting)) - 1
        return next(iter(waiting[max(0, starting) :]), None)


class StopOnRequest(DriverOnly, Stopper):
    """End `fit` after a signal. A budget ends it by offering no more jobs."""

    def __init__(self, driver: DriverClient) -> None:
        self.driver = driver

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.driver.stop


def find_cause(error: BaseException | None) -> str:
    """Return in one line why the machine ended a trial, the root cause first."""
    # Of an error of the trial's own this is the last line of its traceback; Ray's words about a
    # process that is gone end with what it knows.
    last = redact_secrets((str(error).strip().splitlines() or [""])[-1].strip())[:300]
    if isinstance(error, RayActorError):
        return f"its process is gone: {last}"
    return last if error is not None and last else "its process ended"
