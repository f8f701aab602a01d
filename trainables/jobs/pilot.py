"""Time a few steps of a trial, from which a plan estimates time and memory.

    python -m trainables.jobs.pilot < job.json

This runs in a separate process, so that its peak memory is that of one trial, and prints one JSON
line. It writes only the caches that the trial would fill too. Errors are those of the trial.
"""

import json
import resource
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

import torch

from trainables.core.loss_terms import FIRST, FIRST_STEPS, RATIO, EpochMetrics
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.jobs.request import Job
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError, TrialFailure

STEPS = 6  # timed steps, after the first steps, which compile, allocate and measure the terms


def run_pilot(
    config: TrialConfig, seed: int, runtime: Runtime, steps: int = STEPS
) -> dict[str, Any]:
    """Time steps of the main phase, in which all parameters train, and one evaluation.

    Returns:
        `setup`, `steps` and `evaluate`: the seconds of the setup with the steps of the warm-up
        before the epochs, of each step, and of the evaluation after an epoch; `steps_per_epoch`;
        `peak_bytes`, of the GPU or else of the process; `device_bytes`, the memory of the GPU or
        None; `ratios`, of the gradient of each loss term to that of the metric term at the first
        step.
    """
    # build twice, because the first time fills caches
    builds, evaluations, timed = [], [], []
    for _ in range(2):
        begun = time.perf_counter()
        trainer = Trainer(config, seed, replace(runtime, trial_dir=None), resume=False)
        builds.append(time.perf_counter() - begun)
    device = trainer.device if trainer.device.type == "cuda" else None
    if device is not None:
        torch.cuda.reset_peak_memory_stats(device)

    # time the steps
    batches = trainer.plan_batches(0)
    trainer.measure_initial_scales()
    trainer.steps = 0  # the warm-up before the epochs is left out
    trainer.network.enter_phase("main", trainer.parameters)
    trainer.trace = EpochMetrics(1, 0)  # `step` records its terms there
    for number in range(FIRST_STEPS + steps):
        begun = time.perf_counter()
        trainer.step(batches[number % len(batches)], "main")
        if device is not None:
            torch.cuda.synchronize(device)
        timed.append(time.perf_counter() - begun)
    trainer.trace.check()

    # evaluate twice, because the first time fills caches
    for _ in range(2):
        begun = time.perf_counter()
        trainer.evaluator.evaluate_epoch()  # waits for the device
        evaluations.append(time.perf_counter() - begun)
    if device is not None:
        peak = torch.cuda.max_memory_allocated(device)
        total = torch.cuda.get_device_properties(device).total_memory
    else:
        unit = 1 if sys.platform == "darwin" else 1024  # bytes in a unit of `ru_maxrss`
        peak, total = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, None
    return {
        "setup": min(builds) + trainer.warmup_steps * statistics.fmean(timed[FIRST_STEPS:]),
        "steps": timed[FIRST_STEPS:],
        "steps_per_epoch": len(batches),
        "evaluate": min(evaluations),
        "peak_bytes": peak,
        "device_bytes": total,
        "ratios": {
            name.removeprefix("observed/").removesuffix(RATIO + FIRST): ratio
            for name, ratio in trainer.trace.compute_means().items()
            if name.endswith(RATIO + FIRST)
        },
    }


def main() -> int:
    """Read a job from standard input, run its pilot and print the result or the error as JSON."""
    try:
        job = Job.from_dict(json.loads(sys.stdin.read()))
        report = run_pilot(TrialConfig.model_validate(job.config), job.seed, job.runtime)
    except (ConfigError, TrialFailure) as error:
        report = {"error": " ".join(str(error).split())}
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
