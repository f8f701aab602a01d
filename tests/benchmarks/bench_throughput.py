"""Head trials an hour on all cores of this machine: a whole sweep beside bare Ray Tune and Optuna.

Ours is all in: plan, ledger, claims, MLflow, and in each trial the start from data, sampler,
schedule, metrics, log and export (`bench_head.recipe`, plain loss, a grid of learning rates). The
peers run `bench_head.Bare`, a loop of torch with the same head, loss, optimiser, batches and number
of steps and the nearest validation images after each epoch, and keep one number of it: under Ray
Tune with reused actors, and under Optuna in as many processes as there are cores, which share a
study in a journal file. One thread and one core a trial, in turns, warm caches.

Counted is what lies between the end of the WARM-th trial and the end of the last one; starting and
ending are left out. Twice: trials an hour by the clock, and CPU seconds a trial of all processes of
the run, workers, driver, MLflow's writer and Ray's daemons alike. The second hardly depends on what
else the machine does, and is what limits a machine whose cores are all at work. Median of ROUNDS;
all values are printed.

    python -m tests.benchmarks.bench_throughput [--trials 24] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from ablate.api import Options, prepare
from ablate.engine.driver import run_plan
from ablate.engine.ray.resources import Request
from ablate.engine.ray.session import ray_session
from ablate.ledger.ledger import Ledger
from tests.benchmarks.bench_head import Bare, recipe
from tests.benchmarks.results import Result, table
from trainables.machine.cache_folder import default_cache
from trainables.machine.processes import cores

WARM, ROUNDS, TRIALS, EVERY = 4, 3, 24, 0.2


def rates(count: int, turn: int) -> list[float]:
    """Learning rates no other round has, so that none of its trials is known."""
    return [round(1e-3 + 1e-5 * turn + 1e-7 * i, 9) for i in range(count)]


def spec(count: int, turn: int) -> dict[str, Any]:
    return {
        "name": "throughput",
        "seeds": 1,
        "resources": {"cpus": 1, "gpus": 0},
        "trial": recipe("plain"),
        "studies": {
            "g": {
                "design": "grid",
                "evaluate": ["val"],
                "grid": {"optimizer.lr": rates(count, turn)},
            }
        },
    }


class Measured(NamedTuple):
    """an_hour: trials. cpu: seconds a trial."""

    an_hour: float
    cpu: float


class Watched:
    """CPU time of this process and all that it started, over the time of a run."""

    def __init__(self) -> None:
        self._each: dict[tuple[int, float], float] = {}  # also of those that have ended
        self._times: list[float] = []
        self._seconds: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def between(self, first: float, last: float) -> float:
        begin, end = np.interp([first, last], self._times, self._seconds)
        return float(end - begin)

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._ended.wait(EVERY):
            for process in (me, *me.children(recursive=True)):
                try:
                    taken = process.cpu_times()
                    self._each[process.pid, process.create_time()] = taken.user + taken.system
                except psutil.NoSuchProcess:
                    continue  # what it took last stays counted
            self._times.append(time.time())
            self._seconds.append(sum(self._each.values()))


def counted(run: Callable[[int, Path, int], list[float]], count: int, *given: Any) -> Measured:
    """`run` gives the times at which its trials ended."""
    with Watched() as watched:
        ends = sorted(run(count, *given))
    if len(ends) < count:
        raise RuntimeError(f"expected {count} trials, got {len(ends)}")
    first, last, trials = ends[WARM - 1], ends[-1], len(ends) - WARM
    return Measured(3600 * trials / (last - first), watched.between(first, last) / trials)


def ours(count: int, folder: Path, turn: int) -> list[float]:
    options = Options(out=folder, report=False, device="cpu")
    plan, settings = prepare(spec(count, turn), options)
    outcome = run_plan(plan, settings)
    if outcome.trained != count or outcome.missing:
        raise RuntimeError(f"expected {count} trained trials, got {outcome}")
    with Ledger(settings.ledger) as ledger:
        return [row["ended"] for row in ledger.rows("SELECT ended FROM trials")]


def of_ray(count: int, folder: Path, turn: int) -> list[float]:
    from ray import tune

    class Loop(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            import torch

            torch.set_num_threads(1)
            self.bare = Bare(default_cache())

        def step(self) -> dict[str, Any]:
            return {"recall": self.bare(self.config["lr"]), "done": True}

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
        param_space={"lr": tune.grid_search(rates(count, turn))},
        tune_config=tune.TuneConfig(reuse_actors=True),
        run_config=tune.RunConfig(
            name="bare", storage_path=str(folder), verbose=0, callbacks=[Ends()]
        ),
    ).fit()
    return ends


def of_optuna(count: int, folder: Path, turn: int) -> list[float]:
    journal = folder / "journal"
    _study(journal)
    command = [sys.executable, "-m", "tests.benchmarks.bench_throughput"]
    command += ["--trials", str(count), "--journal", str(journal)]
    running = [subprocess.Popen(command) for _ in range(cores())]
    failed = [process.wait() for process in running]
    if any(failed):
        raise RuntimeError("a process of Optuna's failed")
    done = [each.datetime_complete for each in _study(journal).trials]
    return [end.timestamp() for end in done if end is not None]


def _study(journal: Path) -> Any:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        study_name="bare",
        storage=optuna.storages.JournalStorage(JournalFileBackend(str(journal))),
        sampler=optuna.samplers.RandomSampler(),
        direction="maximize",
        load_if_exists=True,
    )


def take_part(count: int, journal: Path) -> None:
    """One of Optuna's processes: trials until there are `count` of all."""
    import optuna
    import torch

    torch.set_num_threads(1)
    bare = Bare(default_cache())
    done = (optuna.trial.TrialState.COMPLETE,)
    _study(journal).optimize(
        lambda trial: bare(trial.suggest_float("lr", 1e-4, 1e-2, log=True)),
        callbacks=[optuna.study.MaxTrialsCallback(count, states=done)],
    )


def measure(count: int, rounds: int) -> dict[str, list[Measured]]:
    """Of each side, round by round."""
    sides = {"ours": ours, "bare Ray Tune": of_ray, "bare Optuna": of_optuna}
    found: dict[str, list[Measured]] = {side: [] for side in sides}
    Bare(default_cache())  # features and all else that is made once
    with tempfile.TemporaryDirectory() as name, ray_session(None, Request(1, 0, "cpu")):
        for turn in range(rounds):
            for place, (side, run) in enumerate(sides.items()):
                folder = Path(name) / f"{turn}-{place}"
                folder.mkdir()
                found[side].append(counted(run, count + WARM, folder, turn))
    return found


def measure_all(count: int = TRIALS, rounds: int = ROUNDS) -> list[Result]:
    found = measure(count, rounds)
    print(f"head trials on {cores()} cores, an hour (CPU seconds each), round by round:")
    for side, each in found.items():
        told = ", ".join(f"{m.an_hour:.0f} ({m.cpu:.3f})" for m in each)
        print(f"  {side:14} {told}")
    rate = {side: statistics.median(m.an_hour for m in each) for side, each in found.items()}
    cpu = {side: statistics.median(m.cpu for m in each) for side, each in found.items()}
    peers = [side for side in found if side != "ours"]
    return [
        *(Result("head trials, whole sweep", rate["ours"], p, rate[p], None, "/h") for p in peers),
        *(Result("head trial, all processes", cpu["ours"], p, cpu[p], None, "s") for p in peers),
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--journal", type=Path, help="of a study to take part in")
    given = parser.parse_args()
    if given.journal is not None:
        take_part(given.trials, given.journal)
        return 0
    print(table(measure_all(given.trials, given.rounds)))
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
