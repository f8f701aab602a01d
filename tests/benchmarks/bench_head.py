"""Head trials, the platform's bread: what one costs, and how many an hour a core does.

A trial as `search_spaces/ddml.yaml` tunes them (`typefaces`, cached features of EfficientNet-Lite0
at 128 px, `init: pca`, 12 epochs of 17 steps), through `run_job` with log, export and all, on one
thread; beside it a bare loop of torch: the same head, loss, optimiser, batch size and clipping, as
many steps, and after each epoch the nearest validation images, but no start from data, sampler,
schedule, metrics or files. Where products are oneDNN's (`trainables/machine/kernels.py`), beside
the same trial by MKL, too. In turns, in one process, with warm caches; CPU time of the process
(`getrusage`), so that other work on the machine meets neither; the median over the rounds.

    python -m tests.benchmarks.bench_head [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.benchmarks.results import Result, table
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.jobs.job import run_job
from trainables.jobs.request import Job
from trainables.machine import kernels
from trainables.machine.cache_folder import default_cache
from trainables.trial import TrialConfig

ROUNDS, NEAREST = 5, 31
METHODS = ("plain", "ddml")
TEMPERATURE = 0.05


def recipe(method: str) -> dict[str, Any]:
    """What a spec says of such a trial."""
    return {
        "data": {"name": "typefaces", "image_size": 128},
        "backbone": {"name": "tf_efficientnet_lite0", "weights": "packaged", "mode": "frozen"},
        "embedding": {"dim": 256, "init": "pca"},
        "loss": {"name": "normsoftmax", "temperature": TEMPERATURE},
        "method": {"name": method},
        "optimizer": {
            "name": "adamw",
            "lr": 1e-3,
            "weight_decay": 1e-4,
            "multipliers": {"proxies": 30, "auxiliary": 1},
        },
        "schedule": {"name": "one_cycle"},
        "training": {"epochs": 12, "batch_size": 128, "per_class": 4},
    }


def trial(method: str) -> dict[str, Any]:
    return TrialConfig(**recipe(method)).model_dump(mode="json")


def ours(method: str, cache: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        runtime = Runtime("cpu", 1, cache, Path(folder) / "trial", run="bench")
        last = list(run_job(Job("bench", trial(method), 0, runtime)))[-1]
    if last["event"] != "final":
        raise RuntimeError(f"the trial ended with {last['event']!r}")


def by_mkl(method: str, cache: Path) -> None:
    """`ours`, with torch's own product."""
    with mock.patch.object(kernels, "onednn_is_quicker", lambda: False):
        ours(method, cache)


class Bare:
    """The loop alone, on the data of `ours`."""

    def __init__(self, cache: Path) -> None:
        config = TrialConfig.model_validate(trial("plain"))
        trainer = Trainer(config, 0, Runtime("cpu", 1, cache))
        self.epochs, self.batches = config.training.epochs, trainer.batches(0)
        splits = trainer.splits
        if splits.val is None:
            raise RuntimeError("the benchmark's trial has no validation split")
        blocks = trainer.inputs.blocks
        self.train, self.val = (torch.cat(list(blocks(s))) for s in (splits.train, splits.val))
        self.labels, self.classes = splits.train.labels, len(splits.train.classes)
        self.val_labels = splits.val.labels
        self.dim = config.embedding.dim

    def __call__(self, lr: float = 1e-3) -> float:
        """Recall@1 of the validation images after the last epoch."""
        recall = 0.0
        head = nn.Linear(self.train.shape[1], self.dim)
        proxies = nn.Parameter(torch.rand(self.classes, self.dim))
        parameters = [*head.parameters(), proxies]
        optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=1e-4, fused=True)
        for _ in range(self.epochs):
            for rows in self.batches:
                z, w = F.normalize(head(self.train[rows])), F.normalize(proxies)
                loss: Tensor = F.cross_entropy(z @ w.T / TEMPERATURE, self.labels[rows])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_value_(parameters, 10.0)
                optimizer.step()
            with torch.inference_mode():
                z = F.normalize(head(self.val))
                nearest = (z @ z.T).topk(NEAREST, dim=1).indices[:, 1]  # after itself
                recall = float((self.val_labels[nearest] == self.val_labels).double().mean())
        return recall


def cpu_seconds(work: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF)
    work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(rounds: int, cache: Path) -> list[Result]:
    torch.set_num_threads(1)
    bare = Bare(cache)
    sides: dict[str, Callable[[], object]] = {m: partial(ours, m, cache) for m in METHODS}
    if kernels.onednn_is_quicker():
        sides |= {f"{m} by MKL": partial(by_mkl, m, cache) for m in METHODS}
    else:
        print("  skipped: MKL is as quick as oneDNN on this processor, or there is but one of them")
    sides["bare loop"] = bare
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, work in sides.items():
            taken = cpu_seconds(work)
            if turn:  # the first warms caches, of this process too
                seconds[name].append(taken)
    print(json.dumps({name: [round(s, 4) for s in each] for name, each in seconds.items()}))
    base = median(seconds["bare loop"])
    found = []
    for method in METHODS:
        mine = median(seconds[method])
        print(f"  {method}: {3600 / mine:.0f} trials an hour and core")
        found.append(
            Result(f"head trial of {method}, CPU", mine, "bare plain loop", base, None, "s")
        )
        if other := seconds.get(f"{method} by MKL"):
            name = f"head trial of {method}, CPU, by oneDNN"
            found.append(Result(name, mine, "by MKL", median(other), None, "s"))
    return found


def measure_all() -> list[Result]:
    return measure(ROUNDS, default_cache())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    print(table(measure(parser.parse_args().rounds, default_cache())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
