"""Start, answer, watch and stop the process that runs Ray (`ablate/engine/ray/process.py`).

An out-of-memory killer or a crash can end Ray's head or raylet, and Ray then hangs or aborts. The
supervisor notices this, kills everything that belongs to that Ray, and starts Ray once more. The
ledger knows what is done, and trials resume from their checkpoints. A cluster that others started
is not restarted.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ablate.engine.progress import ProgressDisplay
from ablate.engine.ray.resources import Request
from ablate.engine.ray.session import OPEN, choose_temporary_folder, is_local
from ablate.ledger.schema import build_disk_full_error, is_disk_full_message
from ablate.storage.checkpoints import TrialCheckpoints
from ablate.sweep.dispatch import JobScheduler
from ablate.tracking.store import build_public_environment
from trainables.core.trial_folder import locate_trial_folder
from trainables.data.dataset import resolve_data_config
from trainables.errors import ConfigError
from trainables.jobs.attempt import RETRIES
from trainables.jobs.request import Job, Leader, Payload, Storage
from trainables.machine.processes import end_session, host_name, is_running

RESTARTS = 1
TICK_SECONDS = 0.5
START_SECONDS = 300.0  # for Ray's start; it gives up earlier by itself
SILENT_SECONDS = 120.0  # without a word that Ray answers
STOP_SECONDS = 60.0  # for the trials to end after a signal
END_SECONDS = 30.0  # for Ray to end when all is done
GATHER_SECONDS = 30.0  # the most, of which a trial tells nothing
RESULTS_A_SECOND = 100  # of all trials; Ray Tune takes 3 ms for one (tests/scale/RESULTS.md)
COMMAND = (sys.executable, "-P", "-m", "ablate.engine.ray.process")

Message = dict[str, Any]
log = logging.getLogger("ablate.engine")


class RayLostError(RuntimeError):
    """Ray or the process that runs it is gone; the message says which part."""


class RayProcess:
    """A process that runs Ray, with all processes that it has started.

    Args:
        log: file that receives its output.
        environment: for it and Ray's processes.

    Attributes:
        begun: whether Ray has started.
    """

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        paths = [str(Path(__file__).parents[3]), environment.get("PYTHONPATH", "")]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.started = psutil.Process(self.pid).create_time()
        self.begun = False
        self._watched: list[tuple[int, float, str]] = []
        self._quiet = 0.0

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RayLostError("its process ended") from None

    def iterate_messages(self) -> Iterator[Message | None]:
        """Yield messages of the process, and None now and then while there is none.

        Raises:
            RayLostError: the process, Ray's head or its raylet is gone, or Ray does not answer.
        """
        assert self._process.stdout is not None
        pipe, buffer = self._process.stdout.fileno(), b""
        looked = last = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                has_data = bool(selector.select(TICK_SECONDS))
                if has_data:
                    data = os.read(pipe, 1 << 20)
                    if not data:
                        self._check_process()
                        raise RayLostError("its process ended")
                    *lines, buffer = (buffer + data).split(b"\n")
                    for line in lines:
                        message: Message = json.loads(line)
                        self._handle_message(message)
                        yield message
                now = time.monotonic()
                # Time in which this process did not run either (frozen, paused) is no silence.
                self._quiet += min(now - last, 2 * TICK_SECONDS)
                last = now
                if now - looked >= TICK_SECONDS and not selector.select(0):
                    looked = now  # with nothing unread: its last word may be that it ends
                    self._check_process()
                    if self._quiet > (SILENT_SECONDS if self.begun else START_SECONDS):
                        raise RayLostError("it does not answer")
                if not has_data:
                    yield None

    def _handle_message(self, message: Message) -> None:
        if message["do"] == "begun":
            self.begun = True
            self._watched = [(pid, start, name) for pid, start, name in message["watch"]]
        if message["do"] in ("begun", "alive"):
            self._quiet = 0.0
        elif message["do"] == "gone":
            raise RayLostError("this machine's node is gone")
        elif message["do"] in ("done", "refused", "failed"):
            self._watched = []

    def _check_process(self) -> None:
        ray_process = self.pid, self.started, "process"  # what it started may hold its pipe open
        for pid, start, name in [*self._watched, ray_process]:
            if not is_running(pid, start):
                raise RayLostError(f"its {name} ended")

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` for the end of the process, then kill it and all that it started."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and is_running(self.pid, self.started):
            time.sleep(0.02)
        with self._process:  # closes its pipes, and waits
            end_session(self.pid)  # before its id can become another's


@dataclass
class Supervisor:
    """Run the jobs of a scheduler through Ray.

    Args:
        address: of a cluster; None for a local Ray.
        folder: for Tune's files.
        begun: called with the number of slots when Ray has started for the first time.
        checkpoints: of trials in storage; None if trial folders are the only place.
        fingerprints: of the data sets that other nodes must have, by `DataConfig.images`; None if
            no trial reads data or there are no other nodes.
        environment: of Ray's processes.
    """

    dispatch: JobScheduler
    address: str | None
    request: Request
    folder: Path
    log: Path
    begun: Callable[[float], ProgressDisplay]
    checkpoints: TrialCheckpoints | None = None
    fingerprints: Mapping[str, str] | None = None
    environment: Mapping[str, str] = field(default_factory=build_public_environment)
    board: ProgressDisplay | None = None
    lives: int = 0
    machine_ends: Counter[str] = field(default_factory=Counter)  # of trials that are under way

    def run(self) -> str:
        """Run until no job is left; return why Ray ended before that, or None.

        Raises:
            ConfigError: the cluster does not exist or is too small.
            LedgerError: the ledger cannot be written, or the disk is full.
        """
        while True:
            try:
                with (
                    choose_temporary_folder() if is_local(self.address) else nullcontext("") as temp
                ):
                    self._run_ray_once(str(temp))
                return ""
            except RayLostError as error:
                why = str(error)
            for trial_id in reversed(list(self.dispatch.running)):
                self.dispatch.requeue(trial_id, f"the machine: Ray is gone ({why})")
            if self.dispatch.is_exhausted:  # by a signal or the budget
                return ""
            if not is_local(self.address) or self.lives > RESTARTS:
                return why
            text = f"Ray is gone ({why}) and is started again; trials go on from their checkpoints"
            if self.board is None:
                log.warning("%s", text)
            else:
                self.board.print_line(text)

    def _run_ray_once(self, temp: str) -> None:
        """Start Ray, and answer its messages until the sweep or Ray ends."""
        self.lives += 1
        process = RayProcess(self.log, self.environment)
        patience, stop_by = 0.0, float("inf")
        script = Path(sys.argv[0] or ".").resolve()  # the user's, if modules lie beside it
        has_modules = script.is_file() and str(script.parent) in sys.path
        try:
            process.send(
                {
                    "address": self.address,
                    **self.request.shares,
                    "folder": str(self.folder),
                    "name": str(self.lives),
                    "storage": self.checkpoints and self.checkpoints.storage.address,
                    "script": str(script) if has_modules else "",
                    "temp": temp,
                }
            )
            for message in process.iterate_messages():
                if self.board is not None:
                    self.board.refresh()
                if self.dispatch.stopping:
                    stop_by = min(stop_by, time.monotonic() + STOP_SECONDS)
                    if not process.begun or time.monotonic() > stop_by:
                        return
                if message is not None and message["do"] == "done":
                    patience = END_SECONDS
                    return
                if message is not None:
                    self._answer_message(message, process)
        finally:
            process.close(patience)

    def _answer_message(self, message: Message, process: RayProcess) -> None:
        do = message["do"]
        if do == "tick":
            process.send({"stop": self.dispatch.stopping})
        elif do == "next":
            answer = self._answer_next(process)
            process.send({**answer, "stop": self.dispatch.stopping})
        elif do == "record":
            self._record_events(message["trial_id"], json.loads(message["events"]), message["node"])
        elif do == "stored":
            assert self.checkpoints is not None
            self.checkpoints.record_checkpoint(message["trial_id"], message["checkpoint"])
        elif do == "ended":
            self._retry_or_give_up(message["trial_id"], f"the machine: {message['reason']}")
        elif do == "begun" and self.board is None:
            self.board = self.begun(message["parallel"])
            self.board.machines.update(message["machines"])
            if not message["token"]:
                self.board.print_line(OPEN)
        elif do == "refused":
            raise ConfigError(*message["error"])
        elif do == "failed":
            if message["full"]:
                raise build_disk_full_error(self.folder)
            raise RayLostError(message["error"].splitlines()[0][:300])
        elif do == "alive" and self.board is not None:
            self.board.machines.update(message["machines"])

    def _answer_next(self, process: RayProcess) -> Message:
        """Return the answer to a "next" message: a job, or whether the run is over."""
        dispatch = self.dispatch
        job = dispatch.claim_next_job()
        if job is None:
            idle = not dispatch.running
            return {"trial_id": None, "payload": None, "over": dispatch.is_exhausted, "idle": idle}
        fingerprint = None
        if self.fingerprints is not None:
            section: Any = job.config["data"]
            fingerprint = self.fingerprints[resolve_data_config(section).images]
        locate_trial_folder(dispatch.settings.trials, job.trial_id).mkdir(
            parents=True, exist_ok=True
        )
        # a worker gathers events: on a laptop for a second, among a thousand trials for ten, so
        # that Ray Tune has time left to begin and end trials
        gather = min(GATHER_SECONDS, max(1.0, len(dispatch.running) / RESULTS_A_SECOND))
        payload = Payload(
            job,
            dispatch.settings.runner,
            dispatch.settings.clean,
            Leader(host_name(), process.pid, process.started),
            gather,
            fingerprint,
            self._find_storage(job),
        )
        return {"trial_id": job.trial_id, "payload": payload.to_text()}

    def _find_storage(self, job: Job) -> Storage | None:
        """Return where in storage a job's trials have their checkpoints."""
        if self.checkpoints is None:
            return None
        if self.checkpoints.remote:
            try:  # what an earlier run without storage has left here
                self.checkpoints.upload_trial(job.trial_id)
            except OSError as error:
                log.warning("%s", error)
        trials = {job.trial_id, *(member.export.parent.name for member in job.members)}
        places = {trial: self.checkpoints.list_attempts(trial) for trial in sorted(trials)}
        return Storage(self.checkpoints.storage.address, self.checkpoints.remote, places)

    def _record_events(self, trial_id: str, events: list[Message], node: str) -> None:
        if self.board is not None:
            self.board.machines.places[trial_id] = node
        if not events:
            return
        self.dispatch.record_events(trial_id, events)
        if trial_id not in self.dispatch.running:
            del self.machine_ends[trial_id]
            if self.checkpoints is not None:
                self.checkpoints.finish_trial(trial_id)

    def _retry_or_give_up(self, trial_id: str, reason: str) -> None:
        """Schedule a job again after the machine ended it, or give it up after too many
        attempts."""
        self.machine_ends[trial_id] += 1
        attempts = self.machine_ends[trial_id]
        if attempts <= RETRIES:
            self.dispatch.requeue(trial_id, reason)
        elif is_disk_full_message(reason):
            raise build_disk_full_error(
                locate_trial_folder(self.dispatch.settings.trials, trial_id)
            )
        else:
            del self.machine_ends[trial_id]
            self.dispatch.mark_lost(trial_id, f"{reason} (given up after {attempts} attempts)")
