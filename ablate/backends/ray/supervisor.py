"""Start, answer, watch and stop the process that runs Ray (`ablate/backends/ray/process.py`).

An out-of-memory killer or a crash can end Ray's head or raylet, and Ray then hangs or aborts. The
supervisor notices this, kills everything that belongs to that Ray, and starts Ray once more. The
ledger knows what is done, and trials resume from their checkpoints. A cluster that others started
is not restarted.
"""

import json
import logging
import os
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from ablate.backends.base import BACKENDS, LOST, Backend
from ablate.backends.ray.session import check_folders, create_ray_folder
from ablate.engine.settings import Settings
from ablate.ledger.schema import build_disk_full_error
from ablate.sweep.required_inputs import has_undecided_weights
from trainables.core.runtime import locate_trial_folder
from trainables.data.dataset import resolve_data_config
from trainables.jobs.locked_job import Event
from trainables.jobs.request import CheckpointStorage, Job, Leader, Payload
from trainables.machine.processes import end_session, host_name, is_running
from trainables.words.environment import (
    HUB,
    PYTHON,
    RAY,
    STORAGE,
    add_import_paths,
    build_public_environment,
)
from trainables.words.errors import ConfigError

RESTARTS = 1
TICK_SECONDS = 0.5
START_SECONDS = 300.0  # for Ray to start; it gives up earlier by itself
SILENT_SECONDS = 120.0  # without a heartbeat of Ray
STOP_SECONDS = 60.0  # for the trials to end after a signal
END_SECONDS = 30.0  # for Ray to shut down after the last trial
MOST_GATHER_SECONDS = 30.0  # in which a worker collects events of a trial
EVENTS_PER_SECOND = 100  # of all trials; Ray Tune takes 3 ms for one (tests/scale/RESULTS.md)
COMMAND = (*PYTHON, "ablate.backends.ray.process")

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


@BACKENDS.register("ray")
@dataclass
class Supervisor(Backend):
    """Run jobs through Ray Tune, on this machine or on a cluster.

    Ray Tune asks for a job whenever a slot is free, so this backend claims jobs at these requests.

    Attributes:
        folder: for Tune's files.
        log: the output of the process that runs Ray.
        fingerprints: of the data sets that other nodes must have, by `DataConfig.images`; None if
            no trial reads data or there are no other nodes.
        environment: of Ray's processes.
        starts: how often Ray was started.
    """

    starts: int = 0
    _process: RayProcess | None = None
    _shutdown_seconds: float = 0.0  # that Ray gets to shut down

    def __post_init__(self) -> None:
        """Find the folders, data sets and variables that Ray's processes need."""
        settings, plan = self.settings, self.plan
        out = settings.out.resolve()
        self.folder = out / "ray" / f"{os.getpid()}-{plan.sweep_id}"
        self.log = out / "logs" / f"{plan.spec.name}-{plan.sweep_id}-ray.log"
        needs_data = settings.reads_data and settings.address is not None
        self.fingerprints = plan.fingerprints if needs_data else None
        # of this process's secrets, Ray and its workers get those that they need
        needed: tuple[str, ...] = RAY if settings.storage is None else (*RAY, *STORAGE)
        if not settings.reads_data or has_undecided_weights(plan, self.job_queue.progression):
            needed += HUB
        self.environment = build_public_environment(settings.tracking_uri, needed)

    @classmethod
    def check_usable(cls, settings: Settings) -> None:
        check_folders(settings.address)

    def start(self, job: Job) -> None:
        """Send a job to the process that runs Ray, which has asked for one."""
        assert self._process is not None
        payload = self._build_payload(job, self._process)
        stop = self.job_queue.stopping
        self._process.send({"trial_id": job.trial_id, "payload": payload.to_text(), "stop": stop})

    def receive_events(self) -> Iterator[tuple[str, Sequence[Event]] | None]:
        """Yield events of trials, and answer the other messages of the process that runs Ray."""
        process, stop_by = self._process, float("inf")
        assert process is not None
        for message in process.iterate_messages():  # None at each half second without one
            self.refresh()
            # after a request to stop, running trials get a minute to end
            if self.job_queue.stopping:
                stop_by = min(stop_by, time.monotonic() + STOP_SECONDS)
                if not process.has_begun or time.monotonic() > stop_by:
                    return
            if message is not None and message["do"] == "done":
                self._shutdown_seconds = END_SECONDS
                return
            yield None if message is None else self._answer_message(message, process)

    def stop(self) -> None:
        """End the process that runs Ray, and all that it has started."""
        if self._process is not None:
            self._process.close(self._shutdown_seconds)
            self._process = None

    def run(self) -> str:
        """Run all jobs, and restart a lost local Ray once; return why Ray ended, or "" if done.

        Raises:
            ConfigError: the cluster does not exist or is too small.
            LedgerError: the ledger cannot be written, or the disk is full.
            RayStartError: Ray does not start, which another try would not change.
        """
        is_local = self.settings.address is None
        while True:
            try:
                with create_ray_folder() if is_local else nullcontext("") as ray_folder:
                    self._run_ray_once(ray_folder)
                return ""
            except RayLostError as error:
                reason = str(error)
            finally:
                shutil.rmtree(self.folder, ignore_errors=True)
            for trial_id in reversed(list(self.job_queue.running)):  # each to the queue's front
                self.job_queue.requeue(trial_id, f"the machine: Ray is gone ({reason})")
            if self.job_queue.is_exhausted:  # a signal or the budget has ended the run
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
        """Start a process that runs Ray, and record its events until the sweep is over."""
        self.starts += 1
        self._process, self._shutdown_seconds = RayProcess(self.log, self.environment), 0.0
        # Ray's workers may import modules from the folder of the user's script
        script = Path(sys.argv[0] or ".").resolve()
        has_modules = script.is_file() and str(script.parent) in sys.path
        try:
            self._process.send(
                {
                    "address": self.settings.address,
                    "request": asdict(self.settings.request),
                    "folder": str(self.folder),
                    "name": str(self.starts),
                    "storage": self.stored and self.stored.address,
                    "script": str(script) if has_modules else "",
                    "ray_folder": ray_folder,
                }
            )
            for message in self.receive_events():
                if message is not None:
                    self.record_events(*message)
        finally:
            self.stop()

    def _answer_message(
        self, message: Message, process: RayProcess
    ) -> tuple[str, Sequence[Event]] | None:
        """Act on a message of the process that runs Ray; return the events that it brings."""
        match message["do"]:
            case "tick":
                process.send({"stop": self.job_queue.stopping})
            case "next":
                self._answer_next(process)
            case "record":
                if self.display is not None:
                    self.display.machines.node_by_trial[message["trial_id"]] = message["node"]
                if events := json.loads(message["events"]):
                    return message["trial_id"], events
            case "stored":
                assert self.stored is not None
                self.stored.record_checkpoint(message["trial_id"], message["checkpoint"])
            case "ended":
                return message["trial_id"], [{"event": LOST, "reason": message["reason"]}]
            case "begun" if self.display is None:
                self.begin_display(message["parallel"])
                self._update_machines(message)
            case "alive":
                self._update_machines(message)
            case "refused":
                raise ConfigError(*message["error"])
            case "failed" if message["full"]:
                raise build_disk_full_error(self.folder)
            case "failed":
                raise RayLostError(message["error"].splitlines()[0][:300])
        return None

    def _update_machines(self, message: Message) -> None:
        if self.display is not None:
            self.display.machines.update(message["machines"])

    def _answer_next(self, process: RayProcess) -> None:
        """Claim and start the next job, or tell the process why there is none now."""
        job = self.job_queue.claim_next_job()
        if job is not None:
            self.start(job)
            return
        answer = {
            "trial_id": None,
            "payload": None,
            "over": self.job_queue.is_exhausted,
            "idle": not self.job_queue.running,  # this driver runs no trial
        }
        process.send({**answer, "stop": self.job_queue.stopping})

    def _build_payload(self, job: Job, process: RayProcess) -> Payload:
        """Return a job with all that a worker needs, and create its trial's folder."""
        fingerprint = None  # of this machine's data set; other nodes compare theirs with it
        if self.fingerprints is not None:
            section: Any = job.config["data"]
            fingerprint = self.fingerprints[resolve_data_config(section).images]
        folder = locate_trial_folder(self.job_queue.settings.trials, job.trial_id)
        folder.mkdir(parents=True, exist_ok=True)
        # Many running trials send events less often, so that Ray Tune has time to start trials.
        gather_seconds = max(1.0, len(self.job_queue.running) / EVENTS_PER_SECOND)
        return Payload(
            job,
            self.job_queue.settings.runner,
            self.job_queue.settings.clean,
            Leader(host_name(), process.pid, process.started),
            min(MOST_GATHER_SECONDS, gather_seconds),
            fingerprint,
            self._locate_stored_attempts(job),
        )

    def _locate_stored_attempts(self, job: Job) -> CheckpointStorage | None:
        """Return where in storage a job's trial and the folds of its ensemble have checkpoints."""
        if self.stored is None:
            return None
        if self.stored.remote:
            try:  # an earlier run without storage may have trained the trial on this machine
                self.stored.upload_trial(job.trial_id)
            except OSError as error:
                log.warning("%s", error)
        folds = (member.export.parent.name for member in job.members)  # folders are named by trial
        trials = {job.trial_id, *folds}
        attempts = {trial: self.stored.list_attempts(trial) for trial in sorted(trials)}
        return CheckpointStorage(self.stored.address, self.stored.remote, attempts)
