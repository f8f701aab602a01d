"""What training several heads as one batched program could save on a CPU: the limit, not a product.

`Trainer.step` of a head trial (`bench_head.recipe`, plain loss) beside a step of HEADS such heads
with stacked weights, written out by hand: each head's own batch, one batched product for all heads
forward and one backward, one loss, one clipping, one call of the fused AdamW. It has no streams,
schedule, trace or terms of its own for each head, which real members would need: what packing
saves is at most this. In turns, in one process, one thread; CPU time a head and step, median of
ROUNDS. The batched product of torch's has the same bits as the single one, which is checked; its
derivative by the weights is written out, for torch's own comes transposed and is copied.

    python -m tests.benchmarks.bench_packed
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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
from trainables.trial import TrialConfig

DIMS, HEADS, ROUNDS, STEPS = (64, 128, 256, 512), 8, 7, 48


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


def measure_all() -> list[Result]:
    torch.set_num_threads(1)
    return [measure(dim) for dim in DIMS]


if __name__ == "__main__":
    print(table(measure_all()))
    sys.exit(0)
