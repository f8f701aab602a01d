"""Whole sweeps beside bare Ray Tune and Optuna: what a trial costs beyond itself, how many an hour.

Each side runs in a process of its own, in turns; medians over the rounds, and all values are
printed. Ours is all in: plan, ledger, claims, MLflow. Counted is what lies between the end of the
WARM-th trial and the end of the last one: starting and ending are left out.

- No-op trials of a grid, FEW in ROUNDS and MANY once: milliseconds a trial, and how much the
  driver's memory grows a trial. Target: at most 1.2 × bare + 100 ms.
- Head trials (`bench_head.recipe`, plain loss, a grid of learning rates). The peers run
  `bench_head.Bare`, a loop of torch with the same head, loss, optimiser, batches and number of
  steps and the nearest validation images after each epoch: under Ray Tune with reused actors, and
  under Optuna in as many processes as there are cores. Trials an hour by the clock, and CPU
  seconds a trial of all processes of the run, which hardly depend on what else the machine does.
- Slots: SLEEPING trials of SLEEP seconds, two at once. Ideal is their sum / 2, from the first
  trial's start to the last one's end. Target: at most 1.08 × ideal.

    python -m tests.benchmarks.bench_sweep
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.benchmarks.results import Result, table

WARM, ROUNDS, FEW, MANY, HEADS, INTERVAL = 6, 3, 60, 10_000, 24, 0.2
SLEEPING, SLEEP, SLOTS = 100, 5.0, 2
Counts = dict[str, float]


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
        return ledger.rows("SELECT started, ended FROM trials")


# ------------------------------------------------------------------------- sides: when trials end


def noop_ours(trials: int, folder: Path) -> list[float]:
    rows = run_ours(spec(trials, 0.0), untrained(folder, track=True), trials)
    return [row["ended"] for row in rows]


def noop_tune(trials: int, folder: Path) -> list[float]:
    return run_tune(trials, folder, lambda: float)


def head_ours(trials: int, folder: Path) -> list[float]:
    from ablate.api import Options
    from tests.benchmarks.bench_head import recipe

    study = {"design": "grid", "evaluate": ["val"], "grid": {"optimizer.lr": rates(trials)}}
    given = {
        "name": "throughput",
        "seeds": 1,
        "resources": {"cpus": 1, "gpus": 0},
        "trial": recipe("plain"),
        "studies": {"g": study},
    }
    rows = run_ours(given, Options(out=folder, report=False, device="cpu"), trials)
    return [row["ended"] for row in rows]


def head_tune(trials: int, folder: Path) -> list[float]:
    return run_tune(trials, folder, bare_loop)


def head_optuna(trials: int, folder: Path) -> list[float]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_sweep", "optuna", str(trials)]
    study = open_study(folder)
    running = [subprocess.Popen([*command, str(folder)]) for _ in range(os.cpu_count() or 1)]
    codes = [process.wait() for process in running]
    if any(codes):
        raise RuntimeError("a process of Optuna's failed")
    return [trial.datetime_complete.timestamp() for trial in study.trials if trial.state == 1]


def rates(trials: int) -> list[float]:
    return [round(1e-3 + 1e-7 * i, 9) for i in range(trials)]


def bare_loop() -> Any:
    """Return the bare loop of a head trial, on one thread."""
    import torch

    from tests.benchmarks.bench_head import Bare
    from trainables.machine.cache_folder import default_cache

    torch.set_num_threads(1)
    return Bare(default_cache())


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
    tune.Tuner(
        tune.with_resources(Loop, {"cpu": 1}),
        param_space={"lr": tune.grid_search(rates(trials))},
        tune_config=tune.TuneConfig(reuse_actors=True),
        run_config=tune.RunConfig(
            name="bare", storage_path=str(folder), verbose=0, callbacks=[Ends()]
        ),
    ).fit()
    return ends


def open_study(folder: Path) -> Any:
    """Return the study that Optuna's processes share in a journal file."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        study_name="bare",
        storage=optuna.storages.JournalStorage(JournalFileBackend(str(folder / "journal"))),
        sampler=optuna.samplers.RandomSampler(),
        direction="maximize",
        load_if_exists=True,
    )


def work_for_optuna(trials: int, folder: Path) -> None:
    """Take part in a study until all processes together have run so many trials."""
    from optuna.study import MaxTrialsCallback
    from optuna.trial import TrialState

    loop = bare_loop()
    open_study(folder).optimize(
        lambda trial: loop(trial.suggest_float("lr", 1e-4, 1e-2, log=True)),
        callbacks=[MaxTrialsCallback(trials, states=(TrialState.COMPLETE,))],
    )


SIDES = {side.__name__: side for side in (noop_ours, noop_tune, head_ours, head_tune, head_optuna)}


# ------------------------------------------------------------------------------------ measurement


class Meter:
    """Samples the CPU time of this process and all that it started, and its own memory."""

    def __init__(self) -> None:
        self._processes: dict[tuple[int, float], float] = {}  # also of those that have ended
        self._samples: list[tuple[float, float, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def between(self, first: float, last: float) -> tuple[float, float]:
        """Return the CPU seconds and the growth of memory in bytes between two times."""
        times, seconds, memory = zip(*self._samples, strict=True)
        cpu, grown = (np.interp([first, last], times, each) for each in (seconds, memory))
        return float(cpu[1] - cpu[0]), float(grown[1] - grown[0])

    def _sample(self) -> None:
        me = psutil.Process()
        while not self._ended.wait(INTERVAL):
            for process in (me, *me.children(recursive=True)):
                try:
                    times = process.cpu_times()
                    key = process.pid, process.create_time()
                except psutil.NoSuchProcess:
                    continue  # its last sample stays counted
                self._processes[key] = times.user + times.system
            used = sum(self._processes.values())
            self._samples.append((time.time(), used, float(me.memory_info().rss)))


def count(side: str, trials: int, folder: Path) -> Counts:
    """Run one side in this process; return seconds, CPU seconds and bytes of a trial."""
    gc.collect()
    with Meter() as meter:
        ends = sorted(SIDES[side](trials + WARM, folder))
    if len(ends) < trials + WARM:
        raise RuntimeError(f"expected {trials + WARM} trials, got {len(ends)}")
    first, last = ends[WARM - 1], ends[-1]
    cpu, memory = meter.between(first, last)
    return {
        "seconds": (last - first) / trials,
        "cpu": cpu / trials,
        "bytes": memory / trials,
    }


def measure_side(side: str, trials: int) -> Counts:
    """Run one side in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_sweep", side, str(trials)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([*command, folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{side} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    counts: Counts = json.loads(done.stdout.strip().splitlines()[-1])
    print(
        f"  {side}: {1e3 * counts['seconds']:.1f} ms by the clock, {1e3 * counts['cpu']:.1f} ms "
        f"of all processors, {counts['bytes'] / 1e3:.1f} kB of the driver a trial",
        flush=True,
    )
    return counts


def measure_rounds(sides: list[str], trials: int, rounds: int) -> dict[str, Counts]:
    """Return the medians of each side over rounds in which the sides take turns."""
    print(f"{trials} trials a run, {rounds} rounds:", flush=True)
    turns = [{side: measure_side(side, trials) for side in sides} for _ in range(rounds)]
    return {
        side: {key: statistics.median(turn[side][key] for turn in turns) for key in turns[0][side]}
        for side in sides
    }


def measure_noop(trials: int, rounds: int) -> list[Result]:
    found = measure_rounds(["noop_ours", "noop_tune"], trials, rounds)
    ours, bare = found["noop_ours"], found["noop_tune"]
    milliseconds, base = 1e3 * ours["seconds"], 1e3 * bare["seconds"]
    kilobytes, other = ours["bytes"] / 1e3, bare["bytes"] / 1e3
    name, peer = f"no-op trial of {trials}", "bare Ray Tune"
    results = [Result(name, milliseconds, peer, base, 1.2 * base + 100, "ms")]
    if trials >= MANY:  # of few trials the memory is noise
        results += [Result(f"{name}, driver", kilobytes, peer, other, 1.2 * other, "kB")]
    return results


def measure_heads(trials: int, rounds: int) -> list[Result]:
    bare_loop()  # features and all else that is made once
    peers = {"bare Ray Tune": "head_tune", "bare Optuna": "head_optuna"}
    found = measure_rounds(["head_ours", *peers.values()], trials, rounds)
    hourly = {side: 3600 / counts["seconds"] for side, counts in found.items()}
    results = []
    for peer, side in peers.items():
        rate, cpu = hourly["head_ours"], found["head_ours"]["cpu"]
        results += [
            Result("head trials, whole sweep", rate, peer, hourly[side], None, "/h"),
            Result("head trial, all processes", cpu, peer, found[side]["cpu"], None, "s"),
        ]
    return results


def measure_slots() -> list[Result]:
    given = spec(SLEEPING, 0.0)
    # Half of the cores each: the trials sleep, and there are two of them also on one core.
    given["resources"] = {"cpus": (os.cpu_count() or 1) / SLOTS, "gpus": 0}
    os.environ["SYN_SLEEP"] = str(SLEEP)
    with tempfile.TemporaryDirectory() as folder:
        rows = run_ours(given, untrained(Path(folder), track=True), SLEEPING)
    del os.environ["SYN_SLEEP"]
    wall = max(row["ended"] for row in rows) - min(row["started"] for row in rows)
    ideal = SLEEPING * SLEEP / SLOTS
    return [Result(f"{SLEEPING} trials of {SLEEP:g} s", wall, "ideal", ideal, 1.08 * ideal, "s")]


def measure_all() -> list[Result]:
    return [
        *measure_noop(FEW, ROUNDS),
        *measure_noop(MANY, 1),
        *measure_heads(HEADS, ROUNDS),
        *measure_slots(),
    ]


def main(arguments: list[str]) -> int:
    if arguments:
        side, trials, folder = arguments
        if side == "optuna":
            work_for_optuna(int(trials), Path(folder))
        else:
            print(json.dumps(count(side, int(trials), Path(folder))))
        return 0
    results = measure_all()
    print(table(results))
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
