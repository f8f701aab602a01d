"""What a sweep costs per trial beyond the trial: ours against bare Ray Tune with actor reuse.

Both run no-op trials in the same process and Ray session, taking turns. The cost is the time
from the end of the WARM-th trial of a run to the end of the run, per trial between: start-up is
left out, and what follows the last trial (ending actors; ours: draining MLflow) is in. A difference
of two separate runs would be smaller than its noise. Ours is all in: plan, ledger, claims, MLflow.
Median of ROUNDS; all values are printed. Target: at most 1.2 × bare + 30 ms.

    python -m tests.benchmarks.bench_sweep [N] [--no-mlflow]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ablate.api import Options, prepare
from ablate.engine.driver import run_plan
from ablate.engine.ray.resources import Request
from ablate.engine.ray.session import ray_session
from ablate.ledger.ledger import Ledger
from tests.benchmarks.results import Result, table

FACTOR, EXTRA = 1.2, 0.030
WARM, ROUNDS = 6, 3


def spec(trials: int, offset: float) -> dict[str, Any]:
    levels = [round(1e-3 + offset + 1e-6 * i, 9) for i in range(trials)]
    return {
        "name": "bench",
        "resources": {"cpus": 1, "gpus": 0},
        "trial": {"training.epochs": 1},
        "studies": {"g": {"design": "grid", "grid": {"optimizer.lr": levels}}},
    }


def untrained(folder: Path, *, track: bool) -> Options:
    """Of a run whose trials cost nothing, and which ends without a report."""
    return Options(
        out=folder,
        track=track,
        report=False,
        runner="tests.ablate.synthetic:run_job",
        fingerprint="tests.ablate.synthetic:fingerprint",
    )


def ours(trials: int, folder: Path, offset: float, track: bool) -> float:
    plan, settings = prepare(spec(trials, offset), untrained(folder, track=track))
    outcome = run_plan(plan, settings)
    ended = time.time()
    if outcome.trained != trials or outcome.missing:
        raise RuntimeError(f"expected {trials} trained trials, got {outcome}")
    with Ledger(settings.ledger) as ledger:
        cells = ledger.cells(plan.sweep_id)
        times = sorted(ledger.rows("SELECT trial_id, ended FROM trials"), key=lambda r: r["ended"])
    mine = {cell["trial_id"] for cell in cells}
    warm = [row["ended"] for row in times if row["trial_id"] in mine][WARM - 1]
    return float(ended - warm) / (trials - WARM)


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

    class Ends(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            ends.append(time.time())

    ends: list[float] = []
    tuner = tune.Tuner(
        tune.with_resources(NoOp, {"cpu": 1}),
        param_space={"i": tune.grid_search(list(range(trials)))},
        tune_config=tune.TuneConfig(reuse_actors=True),
        run_config=tune.RunConfig(
            name="bare", storage_path=str(folder), verbose=0, callbacks=[Ends()]
        ),
    )
    tuner.fit()
    return (time.time() - ends[WARM - 1]) / (trials - WARM)


def measure(trials: int, track: bool) -> tuple[list[float], list[float]]:
    """Seconds per trial, of each round: (bare, ours)."""
    plain, full = [], []
    with tempfile.TemporaryDirectory() as name, ray_session(None, Request(1, 0, "cpu")):
        for i in range(ROUNDS):
            folder = Path(name) / str(i)
            plain.append(bare(trials + WARM, folder / "bare"))
            full.append(ours(trials + WARM, folder / "ours", 0.1 * i, track))
    return plain, full


def measure_all(trials: int = 60, *, track: bool = True) -> list[Result]:
    """The acceptance number; every round is printed."""
    plain, full = measure(trials, track)
    base, mine = statistics.median(plain), statistics.median(full)
    name = f"no-op trial, {'with' if track else 'without'} MLflow"
    result = Result(
        name, 1e3 * mine, "bare Ray Tune", 1e3 * base, 1e3 * (FACTOR * base + EXTRA), "ms"
    )
    print(f"{name}, {trials} a run; ms per trial, round by round:")
    print(f"  bare Ray Tune {milliseconds(plain)}")
    print(f"  ours          {milliseconds(full)}")
    return [result]


def main() -> int:
    counts = [int(arg) for arg in sys.argv[1:] if arg.isdigit()]
    results = measure_all((counts or [60])[0], track="--no-mlflow" not in sys.argv)
    print(table(results))
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    return 0 if all(result.met for result in results) else 1


def milliseconds(values: list[float]) -> str:
    return ", ".join(f"{1e3 * value:.1f}" for value in values)


if __name__ == "__main__":
    sys.exit(main())
