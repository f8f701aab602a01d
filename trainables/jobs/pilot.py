"""A few steps of a trial, timed: what a plan's estimate is made of.

    python -m trainables.jobs.pilot < job.json

takes of a job the configuration, the seed and the runtime. It runs in a process of its own, so
that its peak memory is that of one trial, and prints one JSON line. Nothing is written but the
caches that the trial itself would fill. Whatever would end the trial before its first epoch
(weights that cannot be fetched, an image that cannot be read, sizes that do not fit) ends the
pilot, with the same message.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict, dataclass, replace

import torch

from trainables.core.looks import looked_at
from trainables.core.runtime import Runtime
from trainables.core.trace import Trace
from trainables.core.trainer import Trainer
from trainables.errors import ConfigError, TrialFailure
from trainables.jobs.request import Job
from trainables.trial import TrialConfig

STEPS = 6  # timed ones; one before them is not, as it pays for first uses


@dataclass(frozen=True)
class Pilot:
    """Seconds unless said otherwise.

    fill: decoding, cached features and first uses, which only the first trial pays for.
    setup: building everything, as each later trial does.
    steps: of each timed optimiser step.
    steps_per_epoch: a number.
    evaluate: one evaluation of the selection split, as after each later epoch.
    peak_bytes: of the device's memory on a GPU, else of the process.
    device_bytes: that the device has; None on a CPU.
    """

    fill: float
    setup: float
    steps: tuple[float, ...]
    steps_per_epoch: int
    evaluate: float
    peak_bytes: int
    device_bytes: int | None


def pilot(config: TrialConfig, seed: int, runtime: Runtime, steps: int = STEPS) -> Pilot:
    """Time `steps` steps of the main phase, with everything that trains, and one evaluation.

    Raises:
        ConfigError, TrialFailure: as the trial itself would.
    """
    # Build twice: the first build fills caches, once for all trials, not once for each.
    builds = []
    for _ in range(2):
        begun = time.perf_counter()
        trainer = Trainer(config, seed, replace(runtime, trial_dir=None), resume=False)
        builds.append(time.perf_counter() - begun)
    cuda = trainer.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(trainer.device)
    batches = trainer.batches(0)
    trainer.network.enter("main", trainer.parameters)
    trainer.trace = Trace(1, 0)
    timed = []
    for number in range(steps + 1):
        begun = time.perf_counter()
        trainer.step(batches[number % len(batches)], "main")
        _wait(trainer.device)
        timed.append(time.perf_counter() - begun)
    trainer.trace.check()
    # Evaluate twice: the first evaluation loads what later ones have.
    evaluations = []
    for _ in range(2):
        begun = time.perf_counter()
        for split in looked_at(trainer.config, trainer.splits):
            trainer.looks.evaluate(split, trainer.looks.task.per_epoch)
        _wait(trainer.device)
        evaluations.append(time.perf_counter() - begun)
    setup, evaluate = min(builds), min(evaluations)
    return Pilot(
        fill=max(0.0, builds[0] - setup) + max(0.0, evaluations[0] - evaluate),
        setup=setup,
        steps=tuple(timed[1:]),
        steps_per_epoch=len(batches),
        evaluate=evaluate,
        peak_bytes=torch.cuda.max_memory_allocated(trainer.device) if cuda else _resident_peak(),
        device_bytes=torch.cuda.get_device_properties(trainer.device).total_memory
        if cuda
        else None,
    )


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _resident_peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def main() -> int:
    try:
        job = Job.from_dict(json.loads(sys.stdin.read()))
        timing = pilot(TrialConfig.model_validate(job.config), job.seed, job.runtime)
    except (ConfigError, TrialFailure) as error:
        print(json.dumps({"error": " ".join(str(error).split())}))
        return 0
    print(json.dumps(asdict(timing)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
