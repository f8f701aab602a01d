"""Whole sweeps beside bare Ray Tune: what a trial costs beyond itself, how many an hour.

Each side runs in a process of its own, in turns; medians over the rounds, and all values are
printed. Ours is all in: plan, ledger, claims, MLflow. Counted is what lies between the end of the
WARM-th trial and the end of the last one: starting and ending are left out.

- No-op trials of a grid, FEW in ROUNDS and MANY once: milliseconds a trial, and how much the
  driver's memory grows a trial. Target: at most 1.2 × bare + 100 ms.
- Head trials (`bench_head.recipe`, plain loss, a grid of learning rates). The peer runs
  `bench_head.Bare` under Ray Tune with reused actors. Trials an hour by the clock, and CPU seconds
  a trial of all processes of the run, which hardly depend on what else the machine does.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.benchmarks.results import Result, run_part

WARM, ROUNDS, FEW, MANY, HEADS, INTERVAL = 6, 3, 60, 10_000, 24, 0.2


def spec(trials: int, offset: float) -> dict[str, Any]:
    """Return a grid of learning rates; another offset gives trials that no ledger knows."""
    levels = [round(1e-3 + offset + 1e-6 * i, 9) for i in range(trials)]
    return {
        "name": "bench",
        "resources": {"cpus": 1, "gpus": 0},
        "trial": {"training.epochs": 1},
        "studies": {"g": {"design": "grid", "grid": {"optimizer.lr": levels}}},
    }


def untrained(folder: Path, *, track: bool) -> Any:
    """Return the options of a run whose trials cost nothing and that ends without a report."""
    from ablate.api import Options

    return Options(
        out=folder,
        track=track,
        report=False,
        runner="tests.ablate.synthetic:run_job",
        fingerprint="tests.ablate.synthetic:fingerprint",
    )


def run_ours(given: dict[str, Any], options: Any, trials: int) -> list[dict[str, float]]:
    """Run a sweep and return when each of its trials started and ended."""
    from ablate.api import prepare
    from ablate.engine.driver import run_plan
    from ablate.ledger.ledger import Ledger

    plan, settings = prepare(given, options)
    outcome = run_plan(plan, settings)
    if outcome.trained != trials or outcome.missing:
        raise RuntimeError(f"expected {trials} trained trials, got {outcome}")
    with Ledger(settings.ledger) as ledger:
        return ledger.query("SELECT started, ended FROM trials")


# ------------------------------------------------------------------------- sides: when trials end


def noop_ours(trials: int, folder: Path) -> list[float]:
    rows = run_ours(spec(trials, 0.0), untrained(folder, track=True), trials)
    return [row["ended"] for row in rows]


def noop_tune(trials: int, folder: Path) -> list[float]:
    return run_tune(trials, folder, lambda: float)


def head_ours(trials: int, folder: Path) -> list[float]:
    from ablate.api import Options
    from tests.benchmarks.bench_head import recipe

    spec_values = spec(trials, 0.0) | {"seeds": 1, "trial": recipe("plain")}
    spec_values["studies"]["g"]["evaluate"] = ["val"]
    rows = run_ours(spec_values, Options(out=folder, report=False, device="cpu"), trials)
    return [row["ended"] for row in rows]


def head_tune(trials: int, folder: Path) -> list[float]:
    return run_tune(trials, folder, bare_loop)


def bare_loop() -> Any:
    """Return the bare loop of a head trial, on one thread."""
    import torch

    from tests.benchmarks.bench_head import Bare
    from trainables.data.cache import locate_default_cache

    torch.set_num_threads(1)
    return Bare(locate_default_cache())


def run_tune(trials: int, folder: Path, build: Callable[[], Callable[[float], float]]) -> Any:
    """Run a grid of learning rates by Ray Tune; `build` makes the trial's function in a worker."""
    from ray import tune

    class Loop(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.train_once = build()

        def step(self) -> dict[str, Any]:
            return {"value": self.train_once(self.config["lr"]), "done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.config = new_config
            return True

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Nothing."""

    class Ends(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            ends.append(time.time())

    ends: list[float] = []
    rates = spec(trials, 0.0)["studies"]["g"]["grid"]["optimizer.lr"]
    tune.Tuner(
        tune.with_resources(Loop, {"cpu": 1}),
        param_space={"lr": tune.grid_search(rates)},
        tune_config=tune.TuneConfig(reuse_actors=True),
        run_config=tune.RunConfig(
            name="bare", storage_path=str(folder), verbose=0, callbacks=[Ends()]
        ),
    ).fit()
    return ends


# ------------------------------------------------------------------------------------ measurement


def count(side: Callable[[int, Path], list[float]], trials: int) -> dict[str, float]:
    """Run one side in this process; return seconds, CPU seconds and kB of the driver a trial."""
    processes: dict[tuple[int, float], float] = {}  # CPU seconds, also of those that have ended
    samples: list[tuple[float, float, float]] = []
    ended, driver = threading.Event(), psutil.Process()

    def sample() -> None:
        while not ended.wait(INTERVAL):
            for process in (driver, *driver.children(recursive=True)):
                try:
                    times = process.cpu_times()
                    processes[process.pid, process.create_time()] = times.user + times.system
                except psutil.NoSuchProcess:
                    continue  # its last sample stays counted
            used = sum(processes.values())
            samples.append((time.time(), used, driver.memory_info().rss / 1e3))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    with tempfile.TemporaryDirectory() as folder:
        ends = sorted(side(trials + WARM, Path(folder)))
    ended.set()
    thread.join()
    if len(ends) < trials + WARM:
        raise RuntimeError(f"expected {trials + WARM} trials, got {len(ends)}")
    first, last = ends[WARM - 1], ends[-1]
    times, seconds, memory = zip(*samples, strict=True)
    cpu, kilobytes = (float(np.ptp(np.interp([first, last], times, y))) for y in (seconds, memory))
    return {"seconds": (last - first) / trials, "cpu": cpu / trials, "kB": kilobytes / trials}


SIDES = (noop_ours, noop_tune, head_ours, head_tune)
PARTS = {side.__name__: partial(count, side) for side in SIDES}


def measure_rounds(kind: str, trials: int, rounds: int) -> list[dict[str, float]]:
    """Return the medians of ours and of Tune's over rounds in which they take turns."""
    sides = (f"{kind}_ours", f"{kind}_tune")
    turns = [[run_part("sweep", side, trials) for side in sides] for _ in range(rounds)]
    return [
        {key: statistics.median(item[key] for item in several) for key in several[0]}
        for several in zip(*turns, strict=True)
    ]


def measure_all() -> list[Result]:
    results, peer = list[Result](), "bare Ray Tune"
    for trials, rounds in ((FEW, ROUNDS), (MANY, 1)):
        ours, bare = measure_rounds("noop", trials, rounds)
        milliseconds, base = 1e3 * ours["seconds"], 1e3 * bare["seconds"]
        name = f"no-op trial of {trials}"
        results.append(Result(name, milliseconds, peer, base, 1.2 * base + 100, "ms"))
    kilobytes = bare["kB"]  # of few trials the memory is noise
    results.append(Result(f"{name}, driver", ours["kB"], peer, kilobytes, 1.2 * kilobytes, "kB"))
    bare_loop()  # features and all else that is made once
    ours, bare = measure_rounds("head", HEADS, ROUNDS)
    hourly = [3600 / side["seconds"] for side in (ours, bare)]
    results += [
        Result("head trials, whole sweep", hourly[0], peer, hourly[1], None, "/h"),
        Result("head trial, all processes", ours["cpu"], peer, bare["cpu"], None, "s"),
    ]
    return results
