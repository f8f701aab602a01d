"""What each method costs over the plain loss: the time of a training step, fine-tuning.

The set-up is that of `search_spaces/ddml.yaml`'s `finetuned`: `typefaces` at 64 px, batches of 128,
EfficientNet-Lite0 training whole, one thread; every method of the registry at its defaults, on the
first loss of LOSSES that it takes, beside the plain loss on the same. Trainers take their steps
in turns, one each a round, so that other work on the machine meets all alike; a ratio is the
median over the rounds of the two steps of one round. From the middle of a trial on: where a method
has phases, the later one.

    python -m tests.benchmarks.bench_overhead [--rounds 9] [--device cpu]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from pydantic import ValidationError

from tests.benchmarks.results import Result, table
from trainables.core.runtime import Runtime
from trainables.core.trace import Trace
from trainables.core.trainer import Trainer
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig

FIRST = ("normsoftmax", "proxy_anchor")  # tried before all other losses
WARM, ROUNDS = 2, 9


def trial(method: str, loss: str) -> TrialConfig:
    return TrialConfig(
        data={"image_size": 64, "augment": {"crop_scale": (0.5, 1.0), "flip": 0}},
        embedding={"dim": 256},
        method={"name": method},
        loss={"name": loss},
        optimizer={"lr": 4e-4, "multipliers": {"head": 5, "proxies": 75, "auxiliary": 5}},
        training={"epochs": 4, "batch_size": 128, "per_class": 4},
    )


def loss_for(method: str) -> str:
    """The first loss that the method takes.

    Raises:
        RuntimeError: none; with what it said to each.
    """
    refused = []
    for loss in dict.fromkeys((*FIRST, *LOSSES)):
        try:
            trial(method, loss)
        except ValidationError as error:
            refused.append(f"{loss}: {error.errors()[0]['msg']}")
        else:
            return loss
    raise RuntimeError(f"{method} takes no loss of the registry: {'; '.join(refused)}")


class Stepping:
    """A trial half way through its steps; `seconds()` takes one more."""

    def __init__(self, method: str, loss: str, cache: Path, device: str) -> None:
        self.trainer = Trainer(
            trial(method, loss), 0, Runtime(cache_dir=cache, device=device, threads=1)
        )
        self.trainer.epoch = self.trainer.config.training.epochs // 2
        self.trainer.steps = self.trainer.total_steps // 2
        self.batches = self.trainer.batches(self.trainer.epoch)
        self.trainer.network.enter("main", self.trainer.parameters)
        self.taken = 0

    def seconds(self) -> float:
        self.trainer.trace = Trace(1, self.trainer.steps)
        batch = self.batches[self.taken % len(self.batches)]
        self.taken += 1
        self._wait()
        began = time.perf_counter()
        self.trainer.step(batch, "main")
        self._wait()
        found = time.perf_counter() - began
        self.trainer.trace.check()
        return found

    def _wait(self) -> None:
        if self.trainer.device.type == "cuda":
            torch.cuda.synchronize(self.trainer.device)


def measure(methods: list[str], rounds: int, device: str) -> list[Result]:
    """One result per method: ms of its step beside ms of the plain one."""
    with tempfile.TemporaryDirectory() as folder:
        losses = {method: loss_for(method) for method in methods}
        pairs = [(method, losses[method]) for method in methods]
        wanted = list(dict.fromkeys([*(("plain", loss) for _, loss in pairs), *pairs]))
        running = {pair: Stepping(*pair, Path(folder), device) for pair in wanted}
        times: dict[tuple[str, str], list[float]] = {pair: [] for pair in wanted}
        for turn in range(WARM + rounds):
            for pair, stepping in running.items():
                taken = stepping.seconds()
                if turn >= WARM:
                    times[pair].append(taken)
        where = running[wanted[0]].trainer.device.type
    found = []
    for method, loss in pairs:
        own, plain = times[method, loss], times["plain", loss]
        ratios = sorted(a / b for a, b in zip(own, plain, strict=True))
        ratio, base = median(ratios), 1e3 * median(plain)
        print(
            f"  {method} on {loss}: ×{ratio:.3f} (rounds ×{ratios[0]:.3f} to ×{ratios[-1]:.3f}), "
            f"plain {base:.4g} ms a step, {where}",
            flush=True,
        )
        found.append(
            Result(f"step of {method}", ratio * base, f"plain on {loss}", base, None, "ms")
        )
    return found


def measure_all() -> list[Result]:
    return measure([name for name in METHODS if name != "plain"], ROUNDS, "cpu")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    methods = [name for name in METHODS if name != "plain"]
    print(table(measure(methods, given.rounds, given.device)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
