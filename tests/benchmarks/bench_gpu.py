"""A GPU at work: the whole network's step beside the bare backbone, methods beside the plain loss,
ranking beside the bare matrix product, and clusters. Skipped where there is none.

The step: ResNet-50 at 224 px, batches of 120, bf16, channels-last, fused AdamW, images resident;
bare is the same backbone, forward, backward and optimiser on one batch of the device, with the mean
of the features for a loss. Evaluation: 60,502 rows of 512, drawn as in `bench_evaluation`; the bare
product is of all by all in blocks, in the same precision. Milliseconds by the clock, the device
waited for, medians of ROUNDS in turns.

    python -m tests.benchmarks.bench_gpu [--device cuda] [--small]

--small: sizes with which it can be rehearsed without a GPU (`--device cpu`); no numbers to tell.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from tests.benchmarks.bench_evaluation import RANKS, drawn
from tests.benchmarks.made_photographs import photographs
from tests.benchmarks.results import Result, table
from trainables.backbones.backbone import Backbone
from trainables.core.runtime import Runtime
from trainables.core.trace import Trace
from trainables.core.trainer import Trainer
from trainables.evaluation.metrics import evaluate
from trainables.trial import TrialConfig

ROUNDS, WARM = 15, 5
METHODS = ("ddml", "detreg", "idml", "dvml", "nir")
MIXES = {"idml"}  # originals and mixtures pass: twice the images
GIB = 2**30


@dataclass(frozen=True)
class Sizes:
    network: str = "resnet50"
    side: int = 224
    batch: int = 120
    images: int = 1200
    classes: int = 60
    items: int = 60_502
    clustered: int = 12_100


SMALL = Sizes("mobilenetv3_small_050", 32, 24, 240, 20, 600, 100)


def trial(method: str, root: Path, sizes: Sizes, precision: str) -> TrialConfig:
    return TrialConfig(
        data={"name": "folder", "root": str(root), "image_size": sizes.side},
        backbone={"name": sizes.network, "weights": "none", "mode": "finetune", "freeze_bn": True},
        embedding={"dim": 512},
        loss={"name": "proxy_anchor"},
        method={"name": method},
        training={
            "batch_size": sizes.batch,
            "per_class": 4,
            "precision": precision,
            "channels_last": True,
        },
    )


def waited(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def in_turns(device: torch.device, sides: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(WARM + ROUNDS):
        for name, work in sides.items():
            taken = waited(device, work)
            if turn >= WARM:
                found[name].append(1e3 * taken)
    return {name: median(times) for name, times in found.items()}


def stepping(trainer: Trainer) -> Callable[[], None]:
    batches = trainer.batches(0)
    trainer.inputs.expect(batches)
    trainer.network.enter("main", trainer.parameters)
    taken = 0

    def step() -> None:
        nonlocal taken
        trainer.trace = Trace(1, trainer.steps)
        trainer.step(batches[taken % len(batches)], "main")
        taken += 1

    return step


def bare(trainer: Trainer, batch: int) -> Callable[[], None]:
    """The trial's own backbone and optimiser, on one batch."""
    backbone = trainer.network.backbone
    assert isinstance(backbone, Backbone)
    side = trainer.config.data.image_size
    images = torch.randn(batch, 3, side, side, device=trainer.device)
    images = images.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        trainer.network.features(images).mean().backward()  # type: ignore[no-untyped-call]
        trainer.update()
        for parameter in trainer.parameters:
            parameter.grad = None

    return step


def steps(sizes: Sizes, device: torch.device) -> list[Result]:
    precision = "bf16" if device.type == "cuda" else "fp32"
    found = []
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "images", Path(folder) / "cache"
        photographs(root, sizes.images, (500, 375), sizes.classes)

        def made(method: str) -> Trainer:
            runtime = Runtime(str(device), None, cache)
            return Trainer(trial(method, root, sizes, precision), 0, runtime)

        plain = made("plain")
        own = made("plain")
        own.network.enter("main", own.parameters)
        times = in_turns(device, {"ours": stepping(plain), "bare": bare(own, sizes.batch)})
        found.append(
            Result(
                f"step of {sizes.network}, {sizes.side} px, batch {sizes.batch}",
                times["ours"],
                "bare backbone",
                times["bare"],
                times["bare"] / 0.97,
                "ms",
            )
        )
        del own
        for method in METHODS:
            other = made(method)
            times = in_turns(device, {"plain": stepping(plain), method: stepping(other)})
            most = 2.02 if method in MIXES else 1.02
            found.append(
                Result(
                    f"step of {method}",
                    times[method],
                    "plain",
                    times["plain"],
                    times["plain"] * most,
                    "ms",
                )
            )
            del other
        if device.type == "cuda":
            del plain
            found += memory(made, device)
    return found


def memory(made: Callable[[str], Trainer], device: torch.device) -> list[Result]:
    """The most that a step held."""

    def most(method: str) -> float:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        step = stepping(made(method))
        for _ in range(WARM):
            step()
        return torch.cuda.max_memory_allocated(device) / GIB

    base = most("plain")
    return [
        Result(
            f"memory of {method}",
            most(method),
            "plain",
            base,
            base * (2.02 if method in MIXES else 1.02),
            "GiB",
        )
        for method in METHODS
    ]


def evaluation(sizes: Sizes, device: torch.device) -> list[Result]:
    x, y = (part.to(device) for part in drawn(sizes.items, None))

    def product() -> None:
        for part in torch.split(x, 2048):
            torch.mm(part, x.T)

    def ranked() -> None:
        evaluate(x, y, score="cosine", metrics=RANKS)

    times = in_turns(device, {"ranked": ranked, "product": product})
    labels = torch.arange(sizes.items, device=device) % sizes.clustered

    def clustered() -> Tensor | dict[str, float]:
        return evaluate(x, labels, score="cosine", metrics=("nmi",))

    clustered()
    seconds = median(waited(device, clustered) for _ in range(3))
    return [
        Result(
            f"all ranking metrics of {sizes.items} × 512",
            times["ranked"],
            "bare matrix product",
            times["product"],
            1.5 * times["product"],
            "ms",
        ),
        Result(f"NMI, {sizes.clustered} clusters", seconds, "asked", 2.0, 2.0, "s"),
    ]


def measure_all(device: str = "cuda", sizes: Sizes | None = None) -> list[Result]:
    if device == "cuda" and not torch.cuda.is_available():
        print("  all of it skipped: no CUDA device here", flush=True)
        return []
    where, chosen = torch.device(device), sizes or Sizes()
    return [*steps(chosen, where), *evaluation(chosen, where)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    found = measure_all(given.device, SMALL if given.small else None)
    print(table(found))
    return 0 if given.small or all(each.met for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
