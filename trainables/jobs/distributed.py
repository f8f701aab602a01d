"""One trial by several processes of one machine: the first runs the job, its peers train along.

    python -m trainables.jobs.distributed < line        a peer; the first process starts it

The first process is the worker itself, whose folder, events and log are the trial's; its peers
write nothing and end with it. Each has a GPU of its own, in their order, or none has any. What they
exchange is `machine/group.py`'s, what they share is `backbones/passes.py`'s.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.errors import ConfigError, TrialFailure
from trainables.jobs.request import Job
from trainables.machine.devices import resolve_device
from trainables.machine.group import ALONE, Group, create_rendezvous_file, join_group
from trainables.trial import TrialConfig

EXIT_SECONDS = 10.0  # for a process that failed to say why


@contextmanager
def train_together(job: Job) -> Iterator[tuple[Group, Runtime]]:
    """Run a block in which all processes of a trial train it: the group, the first one's runtime.

    Raises:
        ConfigError: more processes than GPUs.
        TrialFailure: a peer failed; the text says how.
        OSError: a peer was ended; the machine's fault, so that it may be tried again.
    """
    size = job.runtime.processes
    if size == 1:
        yield ALONE, job.runtime
        return
    runtimes = [assign_runtime(job.runtime, rank) for rank in range(size)]
    rendezvous = create_rendezvous_file()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, rendezvous.parent, ignore_errors=True)
        peers: list[Peer] = []
        for rank in range(1, size):
            peers.append(Peer(replace(job, runtime=runtimes[rank]), rank, rendezvous))
            stack.callback(peers[-1].kill)
        for peer in peers:
            if (event := peer.read()) != {"event": "ready"}:
                raise peer.explain_end(event)
        try:
            with join_group(rendezvous, 0, size, torch.device(runtimes[0].device)) as group:
                yield group, runtimes[0]
        except TrialFailure:
            raise
        except RuntimeError as error:
            for peer in peers:  # one that has ended is why the others cannot go on
                with contextlib.suppress(subprocess.TimeoutExpired):
                    peer.process.wait(EXIT_SECONDS)
                    raise peer.explain_end(peer.read()) from error
            raise


def assign_runtime(runtime: Runtime, rank: int) -> Runtime:
    """Return one process's device and share of the threads; the first one has the folder.

    Raises:
        ConfigError: one GPU named for all, or fewer than processes.
    """
    device, size = resolve_device(runtime.device), runtime.processes
    if device.type == "cuda":
        present = torch.cuda.device_count()
        if ":" in runtime.device or present < size:
            raise ConfigError(
                "resources.processes",
                f"{size} processes a trial on {runtime.device} need a GPU each, and {present} are "
                "here: lower resources.gpus, and give --device cuda",
            )
        device = torch.device("cuda", rank)
    threads = None if runtime.threads is None else max(1, runtime.threads // size)
    folder = runtime.trial_dir if rank == 0 else None
    return replace(runtime, device=str(device), threads=threads, trial_dir=folder)


class Peer:
    """A process beside the first one. It ends when its standard input does, and so with us."""

    def __init__(self, job: Job, rank: int, rendezvous: Path) -> None:
        self.rank = rank
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainables.jobs.distributed"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self.process.stdin is not None
        request = {"job": job.to_dict(), "rank": rank, "place": str(rendezvous)}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def read(self) -> Any:
        """Return the next event; None: it ended without a word."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def explain_end(self, last: Any) -> Exception:
        """Return the error that its last event, or its end without one, is for the trial."""
        if last is None:
            code = self.process.wait()
            return OSError(f"process {self.rank} of the trial was ended (exit code {code})")
        return TrialFailure(f"process {self.rank} of the trial: {last['reason']}")

    def kill(self) -> None:
        self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()


def main() -> int:
    """Do as a peer what the first process does with a job of mode "train", without its events."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True, name="first process watch").start()
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever libraries print
    job, rank = Job.from_dict(request["job"]), int(request["rank"])
    print(json.dumps({"event": "ready"}), file=answers, flush=True)
    device, size = torch.device(job.runtime.device), job.runtime.processes
    try:
        with join_group(Path(request["place"]), rank, size, device) as group:
            config = TrialConfig.model_validate(job.config)
            trainer = Trainer(config, job.seed, job.runtime, group=group)
            until = job.until or config.training.epochs
            if trainer.epoch < until:
                for report in trainer.train_epochs():
                    if report.epoch >= until:
                        break
            if trainer.epoch == config.training.epochs:
                trainer.finish(job.evaluate, job.metrics)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(json.dumps({"event": "failed", "reason": reason}), file=answers, flush=True)
        os._exit(1)  # at once: others wait for what it would send
    return 0


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
