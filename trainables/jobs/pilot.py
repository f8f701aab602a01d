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

from trainables.core.epoch_metrics import EpochMetrics
from trainables.core.evaluator import list_epoch_splits
from trainables.core.runtime import Runtime
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


def run_pilot(config: TrialConfig, seed: int, runtime: Runtime, steps: int = STEPS) -> Pilot:
    """Time `steps` steps of the main phase, with everything that trains, and one evaluation.

    Raises:
        ConfigError, TrialFailure: as the trial itself would.
    """

    # Build and evaluate twice: what the first does beyond the second fills caches, for all trials.
    builds, evaluations, timed = [], [], []
    for _ in range(2):
        begun = time.perf_counter()
        trainer = Trainer(config, seed, replace(runtime, trial_dir=None), resume=False)
        builds.append(time.perf_counter() - begun)
    device = trainer.device if trainer.device.type == "cuda" else None
    if device is not None:
        torch.cuda.reset_peak_memory_stats(device)
    batches = trainer.plan_batches(0)
    trainer.network.enter("main", trainer.parameters)
    trainer.trace = EpochMetrics(1, 0)
    for number in range(steps + 1):
        begun = time.perf_counter()
        trainer.step(batches[number % len(batches)], "main")
        if device is not None:
            torch.cuda.synchronize(device)
        timed.append(time.perf_counter() - begun)
    trainer.trace.check()
    for _ in range(2):
        begun = time.perf_counter()
        for split in list_epoch_splits(trainer.config, trainer.splits):
            trainer.evaluator.evaluate(
                split, trainer.evaluator.task.per_epoch
            )  # waits for the device
        evaluations.append(time.perf_counter() - begun)
    if device is not None:
        peak = torch.cuda.max_memory_allocated(device)
        total = torch.cuda.get_device_properties(device).total_memory
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        peak, total = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, None
    return Pilot(
        fill=builds[0] - min(builds) + evaluations[0] - min(evaluations),
        setup=min(builds),
        steps=tuple(timed[1:]),
        steps_per_epoch=len(batches),
        evaluate=min(evaluations),
        peak_bytes=peak,
        device_bytes=total,
    )


def main() -> int:
    try:
        job = Job.from_dict(json.loads(sys.stdin.read()))
        timing = run_pilot(TrialConfig.model_validate(job.config), job.seed, job.runtime)
    except (ConfigError, TrialFailure) as error:
        print(json.dumps({"error": " ".join(str(error).split())}))
        return 0
    print(json.dumps(asdict(timing)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
