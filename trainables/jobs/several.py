"""One trial by several processes of one machine: the first runs the job, the others stand by it.

    python -m trainables.jobs.several < line        one of the others; the first one starts it

The first process is the worker itself, whose folder, events and log are the trial's; the others
write nothing and end with it. A GPU belongs to each, in their order, or to none any. What they
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.errors import ConfigError, TrialFailure
from trainables.jobs.request import Job
from trainables.machine.devices import resolve_device
from trainables.machine.group import ALONE, Group, joined, meeting_place
from trainables.trial import TrialConfig

LAST_WORDS = 10.0  # seconds for a process that failed to say why


@contextmanager
def together(job: Job) -> Iterator[tuple[Group, Runtime]]:
    """A block in which all processes of a trial train it: the group, and the first one's runtime.

    Raises:
        ConfigError: more processes than GPUs.
        TrialFailure: another process failed; the text says how.
        OSError: another process was ended; the machine's fault, so that it may be tried again.
    """
    size = job.runtime.processes
    if size == 1:
        yield ALONE, job.runtime
        return
    runtimes = [runtime_of(job.runtime, rank) for rank in range(size)]
    place = meeting_place()
    others: list[Other] = []
    try:
        others.extend(
            Other.started(replace(job, runtime=runtimes[rank]), rank, place)
            for rank in range(1, size)
        )
        for other in others:
            if other.heard() != {"event": "ready"}:
                raise other.why()
        with joined(place, 0, size, torch.device(runtimes[0].device)) as group:
            yield group, runtimes[0]
    except RuntimeError as error:
        gone = [] if isinstance(error, TrialFailure) else [o for o in others if o.ended()]
        raise gone[0].why() if gone else error from error
    finally:
        for other in others:
            other.end()
        shutil.rmtree(place.parent, ignore_errors=True)


def runtime_of(runtime: Runtime, rank: int) -> Runtime:
    """Of one of a trial's processes: its device, its share of the threads; the first has a folder.

    Raises:
        ConfigError: one GPU named for all, or fewer than processes.
    """
    device, size = resolve_device(runtime.device), runtime.processes
    if device.type == "cuda":
        there = torch.cuda.device_count()
        if ":" in runtime.device or there < size:
            raise ConfigError(
                "resources.processes",
                f"{size} a trial on {runtime.device}, with {there} GPUs here",
                "a GPU for each",
                "Lower resources.gpus, and give --device cuda",
            )
        device = torch.device("cuda", rank)
    threads = None if runtime.threads is None else max(1, runtime.threads // size)
    folder = runtime.trial_dir if rank == 0 else None
    return replace(runtime, device=str(device), threads=threads, trial_dir=folder)


@dataclass(frozen=True)
class Other:
    """A process beside the first one. It ends when its standard input does, and so with us."""

    rank: int
    process: subprocess.Popen[str]

    @staticmethod
    def started(job: Job, rank: int, place: Path) -> Other:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainables.jobs.several"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert process.stdin is not None
        given = {"job": job.to_dict(), "rank": rank, "place": str(place)}
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        return Other(rank, process)

    def heard(self) -> dict[str, Any] | None:
        """The next thing it says; None: it ended without a word."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, Any] | None = json.loads(line) if line else None
        return found

    def ended(self) -> bool:
        """Whether it ended, or does within a while."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LAST_WORDS)
        return self.process.poll() is not None

    def why(self) -> Exception:
        """What is to be raised of its end."""
        last = self.heard()
        if last is None:
            code = self.process.wait()
            return OSError(f"process {self.rank} of the trial was ended (exit code {code})")
        return TrialFailure(f"process {self.rank} of the trial: {last['reason']}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def stand_by(job: Job, group: Group) -> None:
    """What the first process does with a job of mode "train", without its events."""
    config = TrialConfig.model_validate(job.config)
    trainer = Trainer(config, job.seed, job.runtime, group=group)
    until = job.until or config.training.epochs
    if trainer.epoch < until:
        for report in trainer.epochs():
            if report.epoch >= until:
                break
    if trainer.epoch == config.training.epochs:
        trainer.finish(job.evaluate, job.metrics)


def main() -> int:
    given = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True, name="first process watch").start()
    said, sys.stdout = sys.stdout, sys.stderr  # whatever libraries print
    job, rank = Job.from_dict(given["job"]), int(given["rank"])
    print(json.dumps({"event": "ready"}), file=said, flush=True)
    device, size = torch.device(job.runtime.device), job.runtime.processes
    try:
        with joined(Path(given["place"]), rank, size, device) as group:
            stand_by(job, group)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(json.dumps({"event": "failed", "reason": reason}), file=said, flush=True)
        os._exit(1)  # at once: others wait for what it would send
    return 0


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
