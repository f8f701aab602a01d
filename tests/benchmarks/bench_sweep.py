"""What a sweep costs per trial beyond the trial: ours against bare Ray Tune with actor reuse.

Both run N no-op trials in the same process, in the same Ray session, one after the other; the cost
is the time of N trials less that of a first `fit()`, per trial. Ours is all in: ledger, claims,
proposals of a grid, and MLflow. Target: at most 1.2 × bare + 30 ms.

    python -m tests.benchmarks.bench_sweep [N] [--no-mlflow]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ablate.api import Options, prepare
from ablate.engine import run_plan
from ablate.ray_session import ray_session
from ablate.resources import Request

FACTOR, EXTRA = 1.2, 0.030


def spec(trials: int, offset: float) -> dict[str, Any]:
    levels = [round(1e-3 + offset + 1e-6 * i, 9) for i in range(trials)]
    return {
        "name": "bench",
        "resources": {"cpus": 1, "gpus": 0},
        "trial": {"training.epochs": 1},
        "studies": {"g": {"design": "grid", "grid": {"optimizer.lr": levels}}},
    }


def ours(trials: int, folder: Path, offset: float, track: bool) -> float:
    options = Options(
        out=folder, track=track, report=False, runner="tests.ablate.synthetic:run_job",
        fingerprint="tests.ablate.synthetic:fingerprint",
    )  # fmt: skip
    plan, settings = prepare(spec(trials, offset), options)
    began = time.perf_counter()
    outcome = run_plan(plan, settings)
    if outcome.trained != trials or outcome.missing:
        raise RuntimeError(f"expected {trials} trained trials, got {outcome}")
    return time.perf_counter() - began


def bare(trials: int, folder: Path) -> float:
    from ray import tune

    class NoOp(tune.Trainable):
        def step(self) -> dict[str, Any]:
            return {"value": self.config["i"], "done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.config = new_config
            return True

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Nothing."""

    began = time.perf_counter()
    tuner = tune.Tuner(
        tune.with_resources(NoOp, {"cpu": 1}),
        param_space={"i": tune.grid_search(list(range(trials)))},
        tune_config=tune.TuneConfig(reuse_actors=True),
        run_config=tune.RunConfig(name=f"bare{trials}", storage_path=str(folder), verbose=0),
    )
    tuner.fit()
    return time.perf_counter() - began


def measure(trials: int, track: bool) -> tuple[float, float]:
    """Seconds per trial beyond the first fit: (bare, ours)."""
    few = 2
    with tempfile.TemporaryDirectory() as name, ray_session(None, Request(1, 0, "cpu")):
        folder = Path(name)
        bare(few, folder)  # imports and first actors
        ours(few, folder / "warm", 0.1, track)
        plain = (bare(few + trials, folder) - bare(few, folder / "few")) / trials
        first = ours(few, folder / "ours", 0.2, track)
        full = (ours(few + trials, folder / "ours", 0.3, track) - first) / trials
    return plain, full


def main() -> int:
    counts = [int(arg) for arg in sys.argv[1:] if arg.isdigit()]
    trials, track = (counts or [100])[0], "--no-mlflow" not in sys.argv
    plain, full = measure(trials, track)
    bound = FACTOR * plain + EXTRA
    print(
        f"no-op trials, {trials} beyond the first fit, {'with' if track else 'without'} MLflow: "
        f"bare Ray Tune {1e3 * plain:.1f} ms, ours {1e3 * full:.1f} ms, "
        f"bound {1e3 * bound:.1f} ms: {'met' if full <= bound else 'MISSED'}"
    )
    return 0 if full <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
