"""Start, answer, watch and stop the process that runs Ray (`ablate/engine/ray/process.py`).

An out-of-memory killer or a crash can end Ray's head or raylet, and Ray then hangs or aborts. The
supervisor notices this, kills everything that belongs to that Ray, and starts Ray once more. The
ledger knows what is done, and trials resume from their checkpoints. A cluster that others started
is not restarted.
"""

import json
import logging
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ablate.engine.progress import ProgressDisplay
from ablate.engine.ray.resources import Request
from ablate.engine.ray.session import create_ray_folder
from ablate.ledger.schema import build_disk_full_error, is_disk_full_message
from ablate.storage.checkpoints import TrialCheckpoints
from ablate.sweep.dispatch import JobScheduler
from reports.frame import GIVEN_UP
from trainables.core.trial_folder import locate_trial_folder
from trainables.data.dataset import resolve_data_config
from trainables.jobs.attempt import RETRIES
from trainables.jobs.request import Job, Leader, Payload, Storage
from trainables.machine.processes import end_session, host_name, is_running
from trainables.words.environment import PYTHON, add_import_paths, build_public_environment
from trainables.words.errors import ConfigError

RESTARTS = 1
TICK_SECONDS = 0.5
START_SECONDS = 300.0  # for Ray to start; it gives up earlier by itself
SILENT_SECONDS = 120.0  # without a heartbeat of Ray
STOP_SECONDS = 60.0  # for the trials to end after a signal
END_SECONDS = 30.0  # for Ray to shut down after the last trial
MOST_GATHER_SECONDS = 30.0  # in which a worker collects events of a trial
EVENTS_PER_SECOND = 100  # of all trials; Ray Tune takes 3 ms for one (tests/scale/RESULTS.md)
COMMAND = (*PYTHON, "ablate.engine.ray.process")

Message = dict[str, Any]
log = logging.getLogger("ablate.engine")


class RayLostError(RuntimeError):
    """Ray or the process that runs it is gone; the message says which part."""


class RayStartError(RuntimeError):
    """Ray could not be started for the first time, so that no trial has run."""


class RayProcess:
    """A process that runs Ray, with all processes that it has started.

    Args:
        log: file that receives its output.
        environment: for it and Ray's processes.
    """

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        """Start the process that runs Ray, in a session of its own, with its output in `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=add_import_paths(environment),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.started = psutil.Process(self.pid).create_time()
        self.has_begun = False  # whether Ray has started
        self._watched: list[tuple[int, float, str]] = []  # (pid, start time, name)
        self._silent_seconds = 0.0  # since Ray's last answer, without pauses of this process

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a message as one line of JSON to the process that runs Ray."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RayLostError("Ray's process ended") from None

    def iterate_messages(self) -> Iterator[Message | None]:
        """Yield the messages of the process that runs Ray; None after each half second without one.

        Raises:
            RayLostError: the process, Ray's head or its raylet is gone, or Ray does not answer.
        """
        assert self._process.stdout is not None
        pipe, buffer = self._process.stdout.fileno(), b""
        last_check = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                has_data = bool(selector.select(TICK_SECONDS))
                if has_data:
                    data = os.read(pipe, 1 << 20)
                    if not data:
                        self._check_processes()
                        raise RayLostError("Ray's process ended")
                    *lines, buffer = (buffer + data).split(b"\n")
                    for line in lines:
                        yield self._read_message(line)
                # check that Ray lives, unless a message is unread, which may say that all is done
                now = time.monotonic()
                if now - last_check >= TICK_SECONDS and not selector.select(0):
                    # a longer time means that this process was suspended
                    self._silent_seconds += min(now - last_check, 2 * TICK_SECONDS)
                    last_check = now
                    self._check_processes()
                    limit = SILENT_SECONDS if self.has_begun else START_SECONDS
                    if self._silent_seconds > limit:
                        raise RayLostError("Ray does not answer")
                if not has_data:
                    yield None

    def _read_message(self, line: bytes) -> Message:
        """Parse a message, and note from it whether Ray lives and which processes Ray needs."""
        message: Message = json.loads(line)
        if message["do"] == "begun":
            self.has_begun = True
            self._watched = [(pid, start, name) for pid, start, name in message["watch"]]
        if message["do"] in ("begun", "alive"):
            self._silent_seconds = 0.0
        return message

    def _check_processes(self) -> None:
        # the process itself is checked too, because its children may hold its pipe open
        for pid, start, name in [*self._watched, (self.pid, self.started, "process")]:
            if not is_running(pid, start):
                raise RayLostError(f"Ray's {name} ended")

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` for Ray's process to end, then kill it with all that it started."""
        with self._process:  # closes the pipes to it
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            end_session(self.pid)


@dataclass
class Supervisor:
    """Run the jobs of a scheduler through Ray.

    Args:
        address: of a cluster; None for a local Ray.
        folder: for Tune's files.
        open_display: called with the number of slots when Ray has started for the first time.
        checkpoints: of trials in storage; None if trial folders are the only place.
        fingerprints: of the data sets that other nodes must have, by `DataConfig.images`; None if
            no trial reads data or there are no other nodes.
        environment: of Ray's processes.

    Attributes:
        starts: how often Ray was started.
        machine_faults: of each unfinished trial, how often the machine ended it.
    """

    dispatch: JobScheduler
    address: str | None
    request: Request
    folder: Path
    log: Path
    open_display: Callable[[int], ProgressDisplay]
    checkpoints: TrialCheckpoints | None = None
    fingerprints: Mapping[str, str] | None = None
    environment: Mapping[str, str] = field(default_factory=build_public_environment)
    display: ProgressDisplay | None = None
    starts: int = 0
    machine_faults: Counter[str] = field(default_factory=Counter)

    def run(self) -> str:
        """Run all jobs, and restart a lost local Ray once; return why Ray ended, or "" if done.

        Raises:
            ConfigError: the cluster does not exist or is too small.
            LedgerError: the ledger cannot be written, or the disk is full.
            RayStartError: Ray does not start, which another try would not change.
        """
        is_local = self.address is None
        while True:
            try:
                with create_ray_folder() if is_local else nullcontext("") as ray_folder:
                    self._run_ray_once(ray_folder)
                return ""
            except RayLostError as error:
                reason = str(error)
            for trial_id in reversed(list(self.dispatch.running)):  # each to the queue's front
                self.dispatch.requeue(trial_id, f"the machine: Ray is gone ({reason})")
            if self.dispatch.is_exhausted:  # a signal or the budget has ended the run
                return ""
            if self.display is None:  # Ray has never begun
                raise RayStartError(
                    f"Ray does not start ({reason}; its log is {self.log}). Correct the cause, and "
                    "give the same command again."
                )
            if not is_local or self.starts > RESTARTS:
                return reason
            text = f"Ray is gone ({reason}) and is started again. Trials resume from checkpoints."
            self.display.print_line(text)

    def _run_ray_once(self, ray_folder: str) -> None:
        """Start a process that runs Ray, and answer its messages until the sweep is over."""
        self.starts += 1
        process = RayProcess(self.log, self.environment)
        shutdown_seconds, stop_by = 0.0, float("inf")  # Ray's time to shut down; end of the loop
        # Ray's workers may import modules from the folder of the user's script
        script = Path(sys.argv[0] or ".").resolve()
        has_modules = script.is_file() and str(script.parent) in sys.path
        try:
            process.send(
                {
                    "address": self.address,
                    "request": asdict(self.request),
                    "folder": str(self.folder),
                    "name": str(self.starts),
                    "storage": self.checkpoints and self.checkpoints.storage.address,
                    "script": str(script) if has_modules else "",
                    "ray_folder": ray_folder,
                }
            )
            for message in process.iterate_messages():  # None at each half second without one
                self.dispatch.ledger.check_file()
                if self.display is not None:
                    self.display.refresh()
                # after a request to stop, running trials get a minute to end
                if self.dispatch.stopping:
                    stop_by = min(stop_by, time.monotonic() + STOP_SECONDS)
                    if not process.has_begun or time.monotonic() > stop_by:
                        return
                if message is not None and message["do"] == "done":
                    shutdown_seconds = END_SECONDS
                    return
                if message is not None:
                    self._answer_message(message, process)
        finally:
            process.close(shutdown_seconds)

    def _answer_message(self, message: Message, process: RayProcess) -> None:
        """Act on a message of the process that runs Ray; answer a "tick" or a "next"."""
        match message["do"]:
            case "tick":
                process.send({"stop": self.dispatch.stopping})
            case "next":
                answer = self._answer_next(process)
                process.send({**answer, "stop": self.dispatch.stopping})
            case "record":
                events = json.loads(message["events"])
                self._record_events(message["trial_id"], events, message["node"])
            case "stored":
                assert self.checkpoints is not None
                self.checkpoints.record_checkpoint(message["trial_id"], message["checkpoint"])
            case "ended":
                self._retry_or_give_up(message["trial_id"], f"the machine: {message['reason']}")
            case "begun" if self.display is None:
                self.display = self.open_display(message["parallel"])
                self.display.machines.update(message["machines"])
            case "alive" if self.display is not None:
                self.display.machines.update(message["machines"])
            case "refused":
                raise ConfigError(*message["error"])
            case "failed" if message["full"]:
                raise build_disk_full_error(self.folder)
            case "failed":
                raise RayLostError(message["error"].splitlines()[0][:300])

    def _answer_next(self, process: RayProcess) -> Message:
        """Claim the next job; return a message with the job, or with why there is none now."""
        dispatch = self.dispatch
        job = dispatch.claim_next_job()
        if job is None:
            idle = not dispatch.running  # this driver runs no trial
            return {"trial_id": None, "payload": None, "over": dispatch.is_exhausted, "idle": idle}
        fingerprint = None  # of this machine's data set; other nodes compare theirs with it
        if self.fingerprints is not None:
            section: Any = job.config["data"]
            fingerprint = self.fingerprints[resolve_data_config(section).images]
        folder = locate_trial_folder(dispatch.settings.trials, job.trial_id)
        folder.mkdir(parents=True, exist_ok=True)
        # Many running trials send events less often, so that Ray Tune has time to start trials.
        gather_seconds = max(1.0, len(dispatch.running) / EVENTS_PER_SECOND)
        payload = Payload(
            job,
            dispatch.settings.runner,
            dispatch.settings.clean,
            Leader(host_name(), process.pid, process.started),
            min(MOST_GATHER_SECONDS, gather_seconds),
            fingerprint,
            self._locate_stored_attempts(job),
        )
        return {"trial_id": job.trial_id, "payload": payload.to_text()}

    def _locate_stored_attempts(self, job: Job) -> Storage | None:
        """Return where in storage a job's trial and the folds of its ensemble have checkpoints."""
        if self.checkpoints is None:
            return None
        if self.checkpoints.remote:
            try:  # an earlier run without storage may have trained the trial on this machine
                self.checkpoints.upload_trial(job.trial_id)
            except OSError as error:
                log.warning("%s", error)
        folds = (member.export.parent.name for member in job.members)  # folders are named by trial
        trials = {job.trial_id, *folds}
        attempts = {trial: self.checkpoints.list_attempts(trial) for trial in sorted(trials)}
        return Storage(self.checkpoints.storage.address, self.checkpoints.remote, attempts)

    def _record_events(self, trial_id: str, events: list[Message], node: str) -> None:
        """Record events of a trial and their node; after its end, download its results."""
        if self.display is not None:
            self.display.machines.node_by_trial[trial_id] = node
        if not events:
            return
        self.dispatch.record_events(trial_id, events)
        if trial_id not in self.dispatch.running:  # the last event has ended the trial
            del self.machine_faults[trial_id]
            if self.checkpoints is not None:
                self.checkpoints.finish_trial(trial_id)

    def _retry_or_give_up(self, trial_id: str, reason: str) -> None:
        """Requeue a trial that the machine ended, or after `RETRIES` retries give the trial up."""
        self.machine_faults[trial_id] += 1
        attempts = self.machine_faults[trial_id]
        if attempts <= RETRIES:
            self.dispatch.requeue(trial_id, reason)
        elif is_disk_full_message(reason):
            folder = locate_trial_folder(self.dispatch.settings.trials, trial_id)
            raise build_disk_full_error(folder)  # which ends the run
        else:
            del self.machine_faults[trial_id]
            self.dispatch.mark_lost(trial_id, f"{reason} ({GIVEN_UP} {attempts} attempts)")
