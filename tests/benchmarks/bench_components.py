"""The cost of each method and loss beside the plain loss: CPU time of a training step, parameters.

    python -m tests.benchmarks.bench_components [NAME …]

measures all components, or those named, and writes them into component_costs.json, which the pages
of docs/reference show.

A step is what the trainer does with cached features: the method's forward pass and terms, the
backward pass and AdamW. `SHAPE` states its sizes. The base of all ratios is the method `plain` with
the loss `normsoftmax`. Component and base take turns, and the ratio is the median over the turns,
so that other work on the machine meets both alike. CPU time of the process, one thread.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch

from tests.benchmarks.results import Result
from tests.trainables.components import loss_options
from trainables import streams
from trainables.core.assembly import build_method
from trainables.core.loss_terms import EpochMetrics
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS, Batch, Progress
from trainables.trial import TrialConfig

FILE = Path(__file__).with_name("component_costs.json")
SHAPE = {"images": 128, "features": 1280, "dimensions": 128, "classes": 100, "per_class": 4}
BASE = {
    "method": {"name": "plain"},
    "loss": {"name": "normsoftmax"},
    "backbone": {"mode": "frozen"},
}
ON_FEATURES = {"idml": {"mixing": "feature_mixup"}}  # options that cached features require
TURNS, LEAST = 11, 0.05  # seconds of one measurement


class Steps:
    """Steps of a trial on random features, and the number of the parameters that they train."""

    def __init__(self, changes: dict[str, Any]) -> None:
        config = TrialConfig(**{**BASE, **changes}, embedding={"dim": SHAPE["dimensions"]})
        sizes = {"features": SHAPE["features"], "classes": SHAPE["classes"]}
        self.method = build_method(config, **sizes, seed=0)
        self.parameters = sum(p.numel() for p in self.method.parameters())
        self.optimizer = torch.optim.AdamW(self.method.parameters(), lr=1e-4)
        self.generator = streams.create_generator(0, "costs")
        x = torch.randn(SHAPE["images"], SHAPE["features"], generator=self.generator)
        labels = torch.arange(SHAPE["images"]) // SHAPE["per_class"] % SHAPE["classes"]
        self.batch = Batch(x, labels[:, None])

    def __call__(self) -> None:
        batch = self.method.prepare(self.batch, self.generator)
        progress = Progress()
        state = self.method(batch.inputs, batch.labels, progress, self.generator)
        terms = self.method.terms(state, batch.labels, progress, self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        EpochMetrics(0, 0).add(terms).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def seconds(step: Callable[[], None], count: int) -> float:
    before = process_time()
    for _ in range(count):
        step()
    return (process_time() - before) / count


def measure(changes: dict[str, Any]) -> dict[str, float]:
    """The ratio of a step's CPU time to the base's, both times in milliseconds, and parameters."""
    sides = [Steps(changes), Steps({})]
    counts = [max(1, round(LEAST / max(seconds(step, 2), 1e-4))) for step in sides]
    turns = [[seconds(*side) for side in zip(sides, counts, strict=True)] for _ in range(TURNS)]
    return {
        "ratio": round(median(ours / base for ours, base in turns), 3),
        "ms": round(1e3 * median(ours for ours, _ in turns), 2),
        "base_ms": round(1e3 * median(base for _, base in turns), 2),
        "parameters": sides[0].parameters,
        "base_parameters": sides[1].parameters,
    }


def measure_components(names: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    costs = {}
    for name in [name for name in METHODS if not names or name in names]:
        costs[f"method {name}"] = measure({"method": {"name": name, **ON_FEATURES.get(name, {})}})
        print(f"  method {name}: {costs[f'method {name}']}", flush=True)
    for name in [name for name in LOSSES if not names or name in names]:
        costs[f"loss {name}"] = measure({"loss": loss_options(name)})
        print(f"  loss {name}: {costs[f'loss {name}']}", flush=True)
    return costs


def measure_all() -> list[Result]:
    return [
        Result(f"step with {name}, CPU", cost["ms"], "plain step", cost["base_ms"], None, "ms")
        for name, cost in measure_components().items()
    ]


if __name__ == "__main__":
    head = ["git", "rev-parse", "--short=12", "HEAD"]
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip(),
        "machine": f"CPU ({platform.machine()}), one thread of {os.cpu_count()} cores",
    }
    known = json.loads(FILE.read_text(encoding="utf-8"))["costs"] if FILE.exists() else {}
    costs = {key: {**row, **about} for key, row in measure_components(sys.argv[1:]).items()}
    document = {"shape": SHAPE, "costs": known | costs}
    FILE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
