"""Many trivial grid trials: time and memory of the driver per trial, ours beside bare Ray Tune.

Each side runs in a process of its own, one after the other in the same run. Time per trial is
that of the whole run from the WARM-th result on; memory per trial is how much the driver's
resident set has grown at the end since that result. Ours is all in: plan, ledger, claims, MLflow.
Targets: time at most 1.2 × bare + 30 ms; memory at most 1.2 × bare.

    python -m tests.benchmarks.bench_scale [N]
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from ablate.engine.ray.resources import Request
from ablate.engine.ray.session import ray_session
from tests.benchmarks.bench_sweep import spec, untrained
from tests.benchmarks.results import Result, table

TRIALS, WARM = 10_000, 50
FACTOR, EXTRA = 1.2, 0.030


class Meter:
    """Clock and resident set at the WARM-th result and at the end."""

    def __init__(self) -> None:
        self.count = 0
        self.begun: tuple[float, int] | None = None

    def result(self) -> None:
        self.count += 1
        if self.count == WARM:
            self.begun = self.now()

    def now(self) -> tuple[float, int]:
        gc.collect()
        return time.time(), psutil.Process().memory_info().rss

    def per_trial(self) -> dict[str, float]:
        if self.begun is None:
            raise RuntimeError(f"expected more than {WARM} results, got {self.count}")
        (t0, m0), (t1, m1) = self.begun, self.now()
        left = self.count - WARM
        return {"seconds": (t1 - t0) / left, "bytes": (m1 - m0) / left, "trials": self.count}


def bare(trials: int, folder: Path) -> dict[str, float]:
    with ray_session(None, Request(1, 0, "cpu")):  # it sets Ray up before Ray is imported
        return _bare(trials, folder)


def _bare(trials: int, folder: Path) -> dict[str, float]:
    from ray import tune

    meter = Meter()

    class NoOp(tune.Trainable):
        def step(self) -> dict[str, Any]:
            return {"value": self.config["i"], "done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.config = new_config
            return True

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Nothing."""

    class Count(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            meter.result()

    tuner = tune.Tuner(
        tune.with_resources(NoOp, {"cpu": 1}),
        param_space={"i": tune.grid_search(list(range(trials)))},
        tune_config=tune.TuneConfig(reuse_actors=True),
        run_config=tune.RunConfig(
            name="bare", storage_path=str(folder), verbose=0, callbacks=[Count()]
        ),
    )
    kept = tuner.fit()  # alive while the memory is read, as the driver's own
    found = meter.per_trial()
    if len(kept) != trials:
        raise RuntimeError(f"expected {trials} results, got {len(kept)}")
    return found


def ours(trials: int, folder: Path) -> dict[str, float]:
    from ablate.api import prepare
    from ablate.engine.driver import run_plan
    from ablate.sweep.dispatch import Dispatch

    meter = Meter()
    reread = Dispatch.reread

    def counted(self: Dispatch, trial_id: str) -> None:
        reread(self, trial_id)
        meter.result()

    Dispatch.reread = counted  # type: ignore[method-assign]
    plan, settings = prepare(spec(trials, 0.0), untrained(folder, track=True))
    outcome = run_plan(plan, settings)
    found = meter.per_trial()
    if outcome.trained != trials or outcome.missing or not outcome.tracked:
        raise RuntimeError(f"expected {trials} trained and tracked trials, got {outcome}")
    return found


def apart(side: str, trials: int) -> dict[str, float]:
    """One side in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.bench_scale", side, str(trials), folder],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"{side} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"  {side}: {1e3 * found['seconds']:.1f} ms and {found['bytes'] / 1e3:.1f} kB a trial")
    return found


def measure_all(trials: int = TRIALS) -> list[Result]:
    print(f"{trials} trivial grid trials, driver's cost per trial:", flush=True)
    plain, full = apart("bare", trials), apart("ours", trials)
    return [
        Result(
            f"{trials} no-op trials",
            1e3 * full["seconds"],
            "bare Ray Tune",
            1e3 * plain["seconds"],
            1e3 * (FACTOR * plain["seconds"] + EXTRA),
            "ms",
        ),
        Result(
            "memory of the driver per trial",
            full["bytes"] / 1e3,
            "bare Ray Tune",
            plain["bytes"] / 1e3,
            FACTOR * plain["bytes"] / 1e3,
            "kB",
        ),
    ]


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in ("bare", "ours"):
        side = bare if arguments[0] == "bare" else ours
        print(json.dumps(side(int(arguments[1]), Path(arguments[2]))))
        return 0
    results = measure_all(int(arguments[0]) if arguments else TRIALS)
    print(table(results))
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
