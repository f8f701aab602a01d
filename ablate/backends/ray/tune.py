"""Run one `Tuner.fit()` for the whole sweep.

Searcher, callback and stopper only pass messages between Ray Tune and the driver, which has the
`JobQueue` (`ablate/backends/ray/session.py`). A job travels as text in the trial's configuration,
and its events come back as results.
"""

import itertools
import os
import time
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, cast

import ray.tune
from ray.exceptions import RayActorError
from ray.tune import Callback, Stopper
from ray.tune.constants import RAY_TUNE_CALLBACKS_ENV_VAR
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from ablate.backends.ray.session import DriverClient
from ablate.engine.resources import Request
from trainables.core.runtime import TRIALS
from trainables.jobs.ray_trainable import PAYLOAD, JobTrainable
from trainables.words.secrets import redact_secrets

TRIAL_ID = "trial"  # in a Tune trial's configuration: our id of it
CHECKPOINTS = 2  # of an attempt that stay
AHEAD = 4  # trials that are claimed before a slot is free for them
WAIT_SECONDS = 1.0  # between two requests while other drivers run all remaining trials
AWS_KEYS = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
AWS_KEYS += ["AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN"]


def run_tune(
    driver: DriverClient, request: Request, folder: Path, name: str, storage: str | None
) -> None:
    """Run the driver's jobs in `Tuner.fit()` until the driver has no more, or asks to stop.

    If all remaining trials belong to other drivers, `fit` ends, which releases the workers' slots.

    Args:
        folder: without `storage`, Tune's files go to its subfolders `name`-0, `name`-1, …, one for
            each `fit`, and no checkpoints of trials are kept there.
        storage: path or URI in which Tune keeps its files, and trials' checkpoints in `trials/`.
    """
    hide_aws_keys()
    # Given to `RunConfig`, the callback would be counted for usage reports, also if these are off,
    # and Ray would import MLflow and Weights & Biases to see that it is none of theirs (1.4 s).
    names = [f"{__name__}.{ResultCallback.__name__}", os.environ.get(RAY_TUNE_CALLBACKS_ENV_VAR)]
    os.environ[RAY_TUNE_CALLBACKS_ENV_VAR] = ",".join(filter(None, names))
    job: dict[str, Any] | None = None  # for the next `fit`, received while waiting
    for number in itertools.count():
        ResultCallback.searcher = searcher = JobSearcher(driver, job)
        ray.tune.Tuner(
            ray.tune.with_resources(JobTrainable, request.bundle),
            tune_config=ray.tune.TuneConfig(
                search_alg=searcher,
                scheduler=StartAll(driver),
                num_samples=-1,
                reuse_actors=True,
                # each attempt of a trial has its own folder of checkpoints
                trial_dirname_creator=lambda trial: f"{trial.config[TRIAL_ID]}.{time.time_ns()}",
            ),
            run_config=ray.tune.RunConfig(
                name=f"{name}-{number}" if storage is None else TRIALS,
                storage_path=str(folder) if storage is None else storage,
                stop=StopOnRequest(driver),
                checkpoint_config=ray.tune.CheckpointConfig(
                    num_to_keep=CHECKPOINTS,
                    checkpoint_at_end=False,  # `JobTrainable.step` asks for checkpoints
                ),
                failure_config=ray.tune.FailureConfig(max_failures=0),  # the driver retries
                verbose=0,
            ),
        ).fit()
        # wait for a trial that another driver gives up
        job, waits = None, searcher.waits
        while waits and job is None and not driver.stop:
            time.sleep(WAIT_SECONDS)
            answer = driver.request("next")
            job = None if answer["payload"] is None else answer
            waits = not answer.get("over", False)
        if job is None:
            return


def hide_aws_keys() -> None:
    """Hide AWS keys from Tune, which would copy them from `os.environ` to workers' command lines.

    pyarrow still reads them from the C library's environment. Workers use the credentials of their
    node.
    """
    for name in AWS_KEYS:
        value = os.environ.pop(name, None)
        if value is not None:
            os.putenv(name, value)  # for C code only: Python's `os.environ` does not show it


class DriverOnly:
    """Base of objects that Tune pickles for a restore that is never used: pickle nothing."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class JobSearcher(DriverOnly, Searcher):
    """Give Tune jobs of all studies as they become ready. Its state is in the ledger.

    Attributes:
        job: the driver's answer with the first job, received before `fit`; None to ask for it.
        waits: whether `fit` ended because all remaining trials belong to other drivers.
        trial_ids: Tune's id of a trial → ours.
    """

    def __init__(self, driver: DriverClient, job: dict[str, Any] | None) -> None:
        super().__init__()
        self.driver, self.job, self.waits = driver, job, False
        self.trial_ids: dict[str, str] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """Return the next job as Tune's config; None: none is ready; FINISHED: end this `fit`."""
        if len(self.trial_ids) >= self.driver.slots + AHEAD:  # enough trials wait for a slot
            return None
        # `self.job` is a job that was received before this `fit`; it is used once
        answer, self.job = self.job or self.driver.request("next"), None
        if answer["payload"] is None:
            # end `fit` also if other drivers run all that remains, and wait for jobs after it
            self.waits = answer["idle"] and not answer["over"]
            return cast(Any, Searcher.FINISHED) if answer["over"] or self.waits else None
        self.trial_ids[trial_id] = answer["trial_id"]
        return {PAYLOAD: answer["payload"], TRIAL_ID: answer["trial_id"]}

    def release_trial(self, trial: Trial) -> str | None:
        """Return the driver's id of an ended trial, and free what Tune keeps of its config."""
        trial.config.clear()
        trial.evaluated_params.clear()
        trial.experiment_tag = ""  # Tune makes it from the whole configuration
        return self.trial_ids.pop(trial.trial_id, None)

    def on_trial_complete(self, trial_id: str, *_: Any, **__: Any) -> None:
        """Do nothing, because the callback passes events on."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, because the state is in the ledger."""


class ResultCallback(Callback):
    """Pass results to the driver as they arrive.

    Tune makes the callback for each `fit`, without arguments.

    Attributes:
        searcher: that of the present `fit`.
    """

    searcher: ClassVar[JobSearcher]

    @property
    def driver(self) -> DriverClient:
        return self.searcher.driver

    def on_step_begin(self, iteration: int, trials: list[Any], **_: Any) -> None:
        self.driver.request("tick")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        """Send the events in a trial's result to the driver."""
        trial_id = self.searcher.trial_ids.get(trial.trial_id)
        events = result.pop("events", None)  # or Tune would keep them for every trial
        if trial_id is not None and events is not None:
            self.driver.send("record", trial_id=trial_id, events=events, node=result["node"])

    def on_checkpoint(
        self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **_: Any
    ) -> None:
        """Tell the driver where in storage Tune has written a trial's checkpoint."""
        trial_id = self.searcher.trial_ids.get(trial.trial_id)
        if trial_id is not None:
            # trials/<trial>.<time>/checkpoint_<number>, below the storage's root
            path = "/".join(PurePosixPath(checkpoint.path).parts[-3:])
            self.driver.send("stored", trial_id=trial_id, checkpoint=path)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        self.searcher.release_trial(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Tell the driver that the machine ended a trial, so that the driver retries it.

        Tune's own retries are off, because Tune counts the death of a free worker twice.
        """
        trial_id = self.searcher.release_trial(trial)
        if trial_id is not None:
            reason = describe_cause(trial.get_pickled_error())
            self.driver.send("ended", trial_id=trial_id, reason=reason)


class StartAll(DriverOnly, FIFOScheduler):
    """Schedule trials first come, first served, and let all workers start.

    Tune gives a free worker to the oldest waiting trial, even if that trial's own worker is
    starting, and then ends that worker. If trials are shorter than a start, a second worker never
    comes up. So this skips as many of the oldest trials as there are slots besides those of running
    trials and the free worker.
    """

    def __init__(self, driver: DriverClient) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.driver, self._order = driver, dict[str, int]()

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        self._order[trial.trial_id] = len(self._order)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Choose the oldest waiting trial for a free worker, but none whose own worker is starting.

        Tune would end that starting worker, and short trials would all run on the first worker.
        """
        live = tune_controller.get_live_trials()
        waiting = [trial for trial in live if trial.status == Trial.PENDING]
        waiting.sort(key=lambda trial: self._order[trial.trial_id])
        # workers start in all slots except those of running trials and that of the free worker
        starting = self.driver.slots - (len(live) - len(waiting)) - 1
        return next(iter(waiting[max(0, starting) :]), None)  # skip those with a starting worker


class StopOnRequest(DriverOnly, Stopper):
    """End `fit` after a signal. A budget ends it by offering no more jobs."""

    def __init__(self, driver: DriverClient) -> None:
        self.driver = driver

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.driver.stop


def describe_cause(error: BaseException | None) -> str:
    """Return in one line, without secrets, why the machine ended a trial.

    The last line of an error is the cause: the end of the trial's own traceback, or what Ray knows
    of a process that is gone.
    """
    text = "" if error is None else str(error).strip()
    cause = redact_secrets(text.rpartition("\n")[2].strip())[:300]
    if isinstance(error, RayActorError):
        return f"the trial's process is gone: {cause}"
    return cause or "the trial's process ended"
