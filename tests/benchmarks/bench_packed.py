"""Packed heads beside heads one after the other, and the most that packing could save on a CPU.

Packs as they are (`trainables/packs`): whole trials of EPOCHS epochs, evaluation after each, in
packs of 8 on a CPU and of 64 on a GPU, where there is one; milliseconds a trial, of the processor
on a CPU and of the clock on a GPU.

The limit on a CPU, not a product: `Trainer.step` of a head trial (`bench_head.recipe`, plain loss)
beside a step of HEADS such heads with stacked weights, written out by hand: each head's own batch,
one batched product for all heads forward and one backward, one loss, one clipping, one call of the
fused AdamW. It has no streams, schedule, trace or terms of its own for each head, which real
members need: what packing saves is at most this. In turns, in one process, one thread; CPU time a
head and step, median of ROUNDS. The batched product of torch's has the same bits as the single one,
which is checked; its derivative by the weights is written out, for torch's own comes transposed and
is copied.

    python -m tests.benchmarks.bench_packed
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.benchmarks.bench_head import TEMPERATURE, cpu_seconds, recipe
from tests.benchmarks.results import Result, table
from trainables.core.runtime import Runtime
from trainables.core.trace import Trace
from trainables.core.trainer import Trainer
from trainables.losses.geometry import unit
from trainables.machine.cache_folder import default_cache
from trainables.packs.pack import Pack
from trainables.trial import TrialConfig

DIMS, HEADS, ROUNDS, STEPS = (64, 128, 256, 512), 8, 7, 48
WHOLE = (
    ("plain", "proxy_anchor", 64),
    ("plain", "normsoftmax", 256),
    ("ddml", "normsoftmax", 256),
    ("nir", "proxy_anchor", 64),
)
EPOCHS, WHOLE_ROUNDS = 4, 3
ASKED = 20  # times as many trials an hour on a large GPU


class Linear(torch.autograd.Function):
    """x [N, B, F], weight [N, D, F], bias [N, 1, D] → [N, B, D], x a constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.baddbmm(bias, x, weight.mT)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        (gradient,) = gradients
        (x,) = ctx.saved_tensors
        return None, torch.bmm(gradient.mT, x), gradient.sum(1, keepdim=True)


class Packed:
    """HEADS heads of a trial; head k begins with the k-th batch of the epoch."""

    def __init__(self, trainer: Trainer, features: Tensor) -> None:
        dim, classes = trainer.config.embedding.dim, len(trainer.splits.train.classes)
        self.features, self.labels = features, trainer.labels
        self.batches, self.classes = trainer.batches(0), torch.arange(classes)
        width = features.shape[1]
        self.weight = nn.Parameter(torch.randn(HEADS, dim, width) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(HEADS, 1, dim))
        self.proxies = nn.Parameter(torch.randn(HEADS, classes, dim))
        self.parameters = [self.weight, self.bias, self.proxies]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, fused=True)

    def check(self) -> None:
        x = self.features[:128].expand(HEADS, -1, -1).contiguous()
        together = torch.baddbmm(self.bias, x, self.weight.mT)
        for k in range(HEADS):
            if not torch.equal(together[k], F.linear(x[k], self.weight[k], self.bias[k, 0])):
                raise RuntimeError("the batched product has other bits than the single one")

    def step(self, number: int) -> None:
        rows = torch.stack([self.batches[(number + k) % len(self.batches)] for k in range(HEADS)])
        x = self.features.index_select(0, rows.view(-1)).view(*rows.shape, -1)
        z: Tensor = Linear.apply(x, self.weight, self.bias)
        logits = unit(z) @ unit(self.proxies).mT / TEMPERATURE
        targets = (self.labels[rows][..., None] == self.classes).float()
        loss = -(targets * F.log_softmax(logits, -1)).sum(-1).mean(-1)
        for parameter in self.parameters:
            parameter.grad = None
        loss.sum().backward()  # type: ignore[no-untyped-call]
        for parameter in self.parameters:
            assert parameter.grad is not None
            parameter.grad.clamp_(-10, 10)
        self.optimizer.step()


def measure(dim: int) -> Result:
    config = TrialConfig(**{**recipe("plain"), "embedding": {"dim": dim, "init": "pca"}})
    trainer = Trainer(config, 0, Runtime("cpu", 1, default_cache()))
    batches = trainer.batches(0)
    packed = Packed(trainer, torch.cat(list(trainer.inputs.blocks(trainer.splits.train))))
    packed.check()
    trainer.enter("main")

    def alone() -> None:
        trainer.trace = Trace(1, trainer.steps)
        for number in range(STEPS):
            trainer.step(batches[number % len(batches)], "main")

    def together() -> None:
        for number in range(STEPS // HEADS):
            packed.step(number)

    sides: dict[str, Callable[[], None]] = {"alone": alone, "together": together}
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(ROUNDS + 1):
        for name, work in sides.items():
            taken = 1e3 * cpu_seconds(work) / STEPS
            if turn:  # the first warms up
                found[name].append(taken)
    mine, single = median(found["together"]), median(found["alone"])
    name = f"step of {HEADS} packed heads by hand, {dim} dims, each"
    return Result(name, mine, "a trial's step", single, None, "ms")


def trials(method: str, loss: str, dim: int, slots: int, *, packed: bool) -> list[TrialConfig]:
    """So many of one shape, each with a rate of its own."""
    made = []
    for number in range(slots):
        told = {**recipe(method), "embedding": {"dim": dim, "init": "pca"}, "loss": {"name": loss}}
        told["optimizer"] = {**told["optimizer"], "lr": 1e-3 * (1 + number / slots)}
        told["training"] = {**told["training"], "epochs": EPOCHS}
        if packed:
            told["training"]["packed"] = slots
        made.append(TrialConfig(**told))
    return made


def trained(configs: list[TrialConfig], device: str) -> None:
    members = [
        Trainer(config, seed, Runtime(device, 1, default_cache()))
        for seed, config in enumerate(configs)
    ]
    if configs[0].training.packed is not None:
        for _ in Pack(members).reports():
            pass
        return
    for member in members:
        for _ in member.epochs():
            pass


def whole(method: str, loss: str, dim: int, slots: int, device: str) -> Result:
    """Trials alone take a part of as many, for they take so long on a GPU."""
    few = max(2, slots // 16)
    sides = {
        "alone": (trials(method, loss, dim, few, packed=False), few),
        "together": (trials(method, loss, dim, slots, packed=True), slots),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(WHOLE_ROUNDS + 1):
        for name, (configs, count) in sides.items():
            taken = 1e3 * seconds_on(device, partial(trained, configs, device)) / count
            if turn:
                found[name].append(taken)
    name = f"{method} on {loss}, {dim} dims, in packs of {slots}, {device}, each"
    bound = None if device == "cpu" else median(found["alone"]) / ASKED
    return Result(name, median(found["together"]), "alone", median(found["alone"]), bound, "ms")


def seconds_on(device: str, work: Callable[[], None]) -> float:
    """Of the processor, or of the clock for what a GPU does."""
    if device == "cpu":
        return cpu_seconds(work)
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def measure_all() -> list[Result]:
    torch.set_num_threads(1)
    found = [whole(method, loss, dim, 8, "cpu") for method, loss, dim in WHOLE]
    if torch.cuda.is_available():
        found += [whole(method, loss, dim, 64, "cuda") for method, loss, dim in WHOLE]
    else:
        print("  packs on a GPU: skipped, no CUDA device here", flush=True)
    return found + [measure(dim) for dim in DIMS]


if __name__ == "__main__":
    print(table(measure_all()))
    sys.exit(0)
