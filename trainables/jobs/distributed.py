"""Train one trial with several processes of one machine.

    python -m trainables.jobs.distributed < line        a peer, started by the main process

The main process is the worker, which writes the trial's files and events. Its peers write nothing
and end with it. Each process has its own GPU, or all use the CPU.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.jobs.request import Job
from trainables.machine.devices import resolve_device
from trainables.machine.group import ALONE, Group, join_group
from trainables.machine.processes import end_process_after
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError, TrialFailure

EXIT_SECONDS = 10.0  # to wait for a failed process's last event


@contextmanager
def train_together(job: Job) -> Iterator[tuple[Group, Runtime]]:
    """Start a trial's other processes (peers) for a block; yield the group and rank 0's runtime.

    Raises:
        TrialFailure: a peer failed; the message says how.
        OSError: a peer was killed, so the machine is at fault and the job may be retried.
    """
    size = job.runtime.processes
    if size == 1:
        yield ALONE, job.runtime
        return
    runtimes = [assign_runtime(job.runtime, rank) for rank in range(size)]
    with contextlib.ExitStack() as stack:
        # start the peers and wait until each is ready
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ablate-group-"))
        rendezvous = Path(folder) / "store"
        peers: list[Peer] = []
        for rank in range(1, size):
            peers.append(Peer(replace(job, runtime=runtimes[rank]), rank, rendezvous))
            stack.callback(peers[-1].kill)
        for peer in peers:
            if (event := peer.read_event()) != {"event": "ready"}:
                raise peer.explain_end(event)

        # train with the peers; if a collective fails, the first peer that has ended is the cause
        try:
            with join_group(rendezvous, 0, size, torch.device(runtimes[0].device)) as group:
                yield group, runtimes[0]
        except TrialFailure:
            raise
        except RuntimeError as error:
            for peer in peers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    peer.process.wait(EXIT_SECONDS)
                    raise peer.explain_end(peer.read_event()) from error
            raise


def assign_runtime(runtime: Runtime, rank: int) -> Runtime:
    """Return the runtime of process `rank`: its device, its threads, and for rank 0 the folder."""
    device, size = resolve_device(runtime.device), runtime.processes
    if device.type == "cuda":
        n_gpus = 1 if ":" in runtime.device else torch.cuda.device_count()  # `cuda:N` is one GPU
        if n_gpus < size:
            raise ConfigError(
                "resources.processes",
                f"{size} processes need {size} GPUs, but {runtime.device} has {n_gpus}",
                "Lower resources.processes and resources.gpus, or name no single GPU as the device",
            )
        device = torch.device("cuda", rank)
    threads = None if runtime.threads is None else max(1, runtime.threads // size)
    folder = runtime.trial_dir if rank == 0 else None
    return replace(runtime, device=str(device), threads=threads, trial_dir=folder)


class Peer:
    """A process that trains along; it ends when the main process closes its standard input."""

    def __init__(self, job: Job, rank: int, rendezvous: Path) -> None:
        """Start the process and send it the job, its rank, and the file where the group meets."""
        self.rank = rank
        command = [sys.executable, "-m", "trainables.jobs.distributed"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)
        assert self.process.stdin is not None
        request = {"job": job.to_dict(), "rank": rank, "rendezvous": str(rendezvous)}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def read_event(self) -> Any:
        """Return the peer's next event; None if it ended without one."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def explain_end(self, last: Any) -> Exception:
        """Return the error for an ended peer; its last event, `last`, is None if it was killed."""
        if last is None:
            code = self.process.wait()
            return OSError(f"Process {self.rank} of the trial ended with exit code {code}")
        return TrialFailure(f"Process {self.rank} of the trial failed: {last['reason']}")

    def kill(self) -> None:
        self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()


def main() -> int:
    """Train as a peer: do the same as the main process, but report no epochs and no result."""
    request = json.loads(sys.stdin.readline())
    end_process_after(sys.stdin.read)  # returns when the main process closes the pipe or ends
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print to standard output
    job, rank = Job.from_dict(request["job"]), int(request["rank"])
    print(json.dumps({"event": "ready"}), file=answers, flush=True)
    device, size = torch.device(job.runtime.device), job.runtime.processes
    try:
        with join_group(Path(request["rendezvous"]), rank, size, device) as group:
            config = TrialConfig.model_validate(job.config)
            trainer = Trainer(config, job.seed, job.runtime, group=group)
            for _ in trainer.train_epochs(job.until):
                pass  # the main process reports the epochs
            if trainer.epoch == config.training.epochs:
                trainer.finish(job.evaluate, job.metrics)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(json.dumps({"event": "failed", "reason": reason}), file=answers, flush=True)
        os._exit(1)  # at once, because all other processes wait in a collective
    return 0


if __name__ == "__main__":
    sys.exit(main())
