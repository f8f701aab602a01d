"""Run jobs in an actor of Ray Tune, one after another.

This is the only file of the package that imports Ray. A job arrives as the text of a `Payload` in
`config[PAYLOAD]`. Each step returns `{"events": JSON text, "done": bool, "node": Ray's node id}`;
events are text because Ray copies and flattens every mapping in a result.
"""

import json
import logging
import queue
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, NoReturn

import ray
from ray import tune

from trainables.jobs.locked_job import Event, LockedJob, limit_threads
from trainables.jobs.node_folder import (
    check_data,
    copy_checkpoint,
    describe_node,
    fetch_files,
    localize_job,
    read_folder_state,
)
from trainables.jobs.request import Leader, Payload
from trainables.machine.processes import end_process_after, host_name, is_running

PAYLOAD = "payload"
DRIVER_SECONDS = 1.0  # between two looks whether the driver runs
STEP_SECONDS = 10.0  # longest step with a storage
STOP_SECONDS = 5.0  # to wait for the next event of a trial that is stopped
PATIENCE_SECONDS = 120.0  # to retry a storage that does not answer
PAUSE_SECONDS = 2.0  # between two such retries

LOG = logging.getLogger(__name__)


def watch_driver(driver: Leader) -> None:
    """End this process soon after the driver ends, if the driver runs on this host."""

    def wait_for_end() -> None:
        while is_running(driver.pid, driver.start):
            time.sleep(DRIVER_SECONDS)

    if driver.host == host_name():
        end_process_after(wait_for_end)


Call = tuple[Callable[[], list[Event]], Future[list[Event]]]


def run_calls(calls: queue.SimpleQueue[Call]) -> NoReturn:
    """Run the functions of a queue in a daemon thread forever; put each result into its future."""
    while True:
        function, future = calls.get()
        try:
            future.set_result(function())
        except BaseException as error:  # `Future.result` raises it again
            future.set_exception(error)


class JobTrainable(tune.Trainable):
    """Run one job at a time; `reset_config` begins the next one in the same process."""

    _locked_job: LockedJob | None = None
    _calls: queue.SimpleQueue[Call] | None = None  # to the thread that runs trials
    _future: Future[list[Event]] | None = None

    def setup(self, config: dict[str, Any]) -> None:
        self._take_payload(config)
        limit_threads(self._job.runtime.threads)
        watch_driver(self._payload.driver)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self._take_payload(new_config)
        return True

    def _take_payload(self, config: dict[str, Any]) -> None:
        """Parse the payload and remove it from `config`, which Tune sends back with each result."""
        self._payload = Payload.parse(config.pop(PAYLOAD))
        self._job = self._payload.job
        self._last: list[Event] = []  # last events, held back until they are stored
        self._stored: dict[str, tuple[int, int]] = {}  # state of the folder when last stored

    def step(self) -> dict[str, Any]:
        """Return the trial's next events as Tune's result.

        With a storage, return after ten seconds at most, since Tune saves checkpoints only between
        steps, and ask for a checkpoint whenever the trial's folder has a newer state.
        """
        if self._locked_job is None:
            self._locked_job = self._enter_folder()

        # without a storage, return the events at once
        if self._payload.storage is None:
            events = self._locked_job.receive_events(self._payload.gather)
            return self._build_result(events, done=events[-1]["event"] != "epoch")

        # report the end only after it was stored
        if self._last:
            return self._build_result(self._last, done=True)
        events = self._receive_events(self._locked_job)
        if events and events[-1]["event"] != "epoch":
            self._last, events = events, []
        state = read_folder_state(self._locked_job.folder)
        changed, self._stored = state != self._stored, state
        return self._build_result(events) | {"should_checkpoint": changed or bool(self._last)}

    def _enter_folder(self) -> LockedJob:
        """Lock the trial's folder, fetch the job's files, and return the locked job."""
        payload = self._payload
        self._job = job = localize_job(payload)
        assert job.runtime.trial_dir is not None
        if payload.fingerprint is not None:
            check_data(job, payload.fingerprint)
        locked_job = LockedJob(job, payload.runner, clean=payload.clean)
        storage = payload.storage
        try:
            if storage is not None:
                wait_for_storage(lambda: fetch_files(storage, job))
                self._stored = read_folder_state(job.runtime.trial_dir)
        except BaseException:
            locked_job.close()
            raise
        return locked_job

    def _receive_events(self, locked_job: LockedJob) -> list[Event]:
        """Return the next events of a trial that runs in a thread, or none after `STEP_SECONDS`."""
        seconds = min(self._payload.gather, STEP_SECONDS)
        if self._calls is None:  # one thread for all jobs
            self._calls = queue.SimpleQueue()
            threading.Thread(target=run_calls, args=(self._calls,), daemon=True).start()
        if self._future is None:
            self._future = Future()
            self._calls.put((lambda: locked_job.receive_events(seconds), self._future))
        wait([self._future], STEP_SECONDS)
        if not self._future.done():
            return []
        future, self._future = self._future, None
        return future.result()

    def _build_result(self, events: list[Event], *, done: bool = False) -> dict[str, Any]:
        if done:
            self.cleanup()
        node = str(ray.get_runtime_context().get_node_id())
        return {"events": json.dumps(events), "done": done, "node": node}

    def save(self, checkpoint_dir: str | None = None) -> Any:
        """Save a checkpoint to the storage, with retries; Tune uploads the temporary folder."""
        assert self._locked_job is not None
        with tempfile.TemporaryDirectory(prefix=".stored-", dir=self._locked_job.folder) as draft:
            folder = str(Path(draft) / "checkpoint")
            result: Any = wait_for_storage(lambda: super(JobTrainable, self).save(folder))
        result.metrics.pop("events", None)  # Tune would keep them as long as the checkpoint
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        assert self._locked_job is not None
        copy_checkpoint(self._locked_job.folder, Path(checkpoint_dir))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Do nothing, because `fetch_files` has downloaded what the job names."""

    def cleanup(self) -> None:
        """Close the locked job, unless its thread does not return within `STOP_SECONDS`."""
        locked_job, self._locked_job = self._locked_job, None
        if locked_job is None:
            return
        if self._future is not None:
            wait([self._future], STOP_SECONDS)
            if not self._future.done():
                return  # the thread ends with this process
            self._future = None
        storage = self._payload.storage
        if storage is not None and storage.own_folder and self._last:
            locked_job.remove_files()  # the trial has ended, and the storage has copies
        locked_job.close()


def wait_for_storage(operation: Callable[[], Any]) -> Any:
    """Run `operation`, and retry it for two minutes while the storage does not answer."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return operation()
        except OSError as error:
            if time.monotonic() >= end:
                raise OSError(
                    f"{describe_node()}: the storage does not answer ({error}). Check --storage"
                ) from error
            LOG.warning("The storage does not answer (%s). The worker retries.", error)
        except RuntimeError as error:  # Tune did not find the driver's marker file
            raise OSError(
                f"{describe_node()}: this node sees another storage than the driver. Give "
                f"--storage a URI or a shared folder ({str(error).splitlines()[0]})"
            ) from error
        time.sleep(PAUSE_SECONDS)
