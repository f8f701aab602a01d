"""Head trials, the platform's bread: what one costs, and how many an hour a core does.

A trial as `search_spaces/ddml.yaml` tunes them (`typefaces`, cached features of EfficientNet-Lite0
at 128 px, `init: pca`, 12 epochs of 17 steps), through `run_job` with log, export and all, on one
thread; beside it a bare loop of torch: the same head, loss, optimiser, batch size and clipping, as
many steps, and after each epoch the nearest validation images, but no start from data, sampler,
schedule, metrics or files. In turns, in one process, with warm caches; CPU time of the process, so
that other work on the machine meets neither; the median over the rounds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.benchmarks.results import Result, cpu_seconds
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.data.cache import locate_default_cache
from trainables.jobs.job import run_job
from trainables.jobs.request import Job
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


def run_trial(method: str, cache: Path) -> None:
    config = TrialConfig(**recipe(method)).model_dump(mode="json")
    with tempfile.TemporaryDirectory() as folder:
        runtime = Runtime("cpu", 1, cache, Path(folder) / "trial", run="bench")
        last = list(run_job(Job("bench", config, 0, runtime)))[-1]
    if last["event"] != "final":
        raise RuntimeError(f"the trial ended with {last['event']!r}")


class Bare:
    """The loop alone, on the data of `recipe`."""

    def __init__(self, cache: Path) -> None:
        config = TrialConfig.model_validate(recipe("plain"))
        trainer = Trainer(config, 0, Runtime("cpu", 1, cache))
        self.epochs, self.batches = config.training.epochs, trainer.plan_batches(0)
        splits = trainer.splits
        assert splits.val is not None
        blocks = trainer.inputs.iterate_blocks
        self.train, self.val = (torch.cat(list(blocks(s))) for s in (splits.train, splits.val))
        self.labels, self.classes = splits.train.labels, len(splits.train.classes)
        self.val_labels = splits.val.labels
        self.dim = config.embedding.dim

    def __call__(self, lr: float = 1e-3) -> float:
        """Return Recall@1 of the validation images after the last epoch."""
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


def measure_all(rounds: int = ROUNDS) -> list[Result]:
    torch.set_num_threads(1)
    cache = locate_default_cache()
    sides: dict[str, Callable[[], object]] = {m: partial(run_trial, m, cache) for m in METHODS}
    sides["bare loop"] = Bare(cache)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, work in sides.items():
            before = cpu_seconds()
            work()
            if turn:  # the first warms caches, of this process too
                seconds[name].append(cpu_seconds() - before)
    medians = {name: median(several) for name, several in seconds.items()}
    base = medians.pop("bare loop")
    for method, milliseconds in medians.items():
        print(f"  {method}: {3600 / milliseconds:.0f} trials an hour and core")
    return [
        Result(f"head trial of {method}, CPU", milliseconds, "bare plain loop", base, None, "s")
        for method, milliseconds in medians.items()
    ]
