"""Training steps beside the bare backbone, and each method's beside the plain loss's.

On a CPU the network is that of `finetuned` in `search_spaces/comparisons/ddml_network.yaml`:
EfficientNet-Lite0 at 64 px, batches of 128, one thread. On a GPU, ResNet-50 at 224 px, batches of
120, bf16, channels-last, images resident.

Every method of the registry is measured at its defaults, on the first loss that it takes, from the
middle of a trial on: where a method has phases, the later one. Trainers take their steps in turns,
one each a round, so that other work on the machine meets all alike; a ratio is the median over the
rounds of the two steps of one round. Milliseconds by the clock, the device waited for.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from pydantic import ValidationError

from tests.benchmarks.results import Result
from trainables.core.loss_terms import EpochMetrics
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig

FIRST = ("proxy_anchor", "normsoftmax")  # tried before all other losses
MIXES = {"idml"}  # originals and mixtures pass: twice the images
WARM, ROUNDS = 3, 11


class Sizes(NamedTuple):
    network: str
    side: int
    batch: int
    images: int
    classes: int
    precision: str


GPU = Sizes("resnet50", 224, 120, 1200, 60, "bf16")
CPU = Sizes("tf_efficientnet_lite0", 64, 128, 1200, 60, "fp32")


def trial(method: str, loss: str, root: Path, sizes: Sizes) -> TrialConfig:
    return TrialConfig(
        data={"name": "folder", "root": str(root), "image_size": sizes.side},
        backbone={"name": sizes.network, "weights": "none", "mode": "finetune", "freeze_bn": True},
        embedding={"dim": 512},
        loss={"name": loss},
        method={"name": method},
        training={
            "batch_size": sizes.batch,
            "per_class": 4,
            "epochs": 4,
            "precision": sizes.precision,
            "channels_last": sizes.precision == "bf16",
        },
    )


def draw_photographs(root: Path, sizes: Sizes) -> None:
    """Write images of noise into class folders."""
    generator = np.random.default_rng(0)
    for number in range(sizes.images):
        path = root / f"{number % sizes.classes:03d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (375, 500, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)


def loss_for(method: str) -> str:
    """Return the first loss that the method takes."""
    for loss in dict.fromkeys((*FIRST, *LOSSES)):
        try:
            trial(method, loss, Path("/"), CPU)
        except ValidationError:
            continue
        return loss
    raise RuntimeError(f"{method} takes no loss of the registry")


class Stepping:
    """A trial half way through its steps; each call takes one more."""

    def __init__(self, config: TrialConfig, device: torch.device, cache: Path) -> None:
        threads = 1 if device.type == "cpu" else None
        self.trainer = Trainer(config, 0, Runtime(str(device), threads, cache))
        self.trainer.epoch = config.training.epochs // 2
        self.trainer.steps = self.trainer.total_steps // 2
        self.batches = self.trainer.plan_batches(self.trainer.epoch)
        self.trainer.inputs.prefetch(self.batches)
        self.trainer.network.enter_phase("main", self.trainer.parameters)
        self.taken = 0

    def __call__(self) -> None:
        self.trainer.trace = EpochMetrics(1, self.trainer.steps)
        self.trainer.step(self.batches[self.taken % len(self.batches)], "main")
        self.taken += 1


def bare(config: TrialConfig, device: torch.device, cache: Path) -> Callable[[], None]:
    """Return a step of a trial's backbone and optimiser alone, on one batch in memory."""
    trainer = Stepping(config, device, cache).trainer
    images = torch.randn(config.training.batch_size, 3, *2 * (config.data.image_size,))
    images = images.to(device, memory_format=torch.channels_last)

    def step() -> None:
        trainer.network.features(images).mean().backward()  # type: ignore[no-untyped-call]
        trainer.optimizer.step()
        for parameter in trainer.parameters:
            parameter.grad = None

    return step


def seconds(device: torch.device, work: Callable[[], object]) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def compare(
    name: str, device: torch.device, sides: dict[str, Callable[[], object]], most: float | None
) -> Result:
    """Take turns; the result is the median ratio and the base's median milliseconds.

    Args:
        sides: ours, then what it is compared with, each by its name.
        most: bound of the ratio.
    """
    (_, ours), (base_name, base) = sides.items()
    rounds = [(seconds(device, ours), seconds(device, base)) for _ in range(WARM + ROUNDS)][WARM:]
    milliseconds = 1e3 * median(other for _, other in rounds)
    ratio = median(seconds_ours / other for seconds_ours, other in rounds)
    bound = None if most is None else most * milliseconds
    print(f"  {name}: ×{ratio:.3f} of {base_name}, {milliseconds:.4g} ms", flush=True)
    return Result(name, ratio * milliseconds, base_name, milliseconds, bound, "ms")


def measure_steps(sizes: Sizes, device: torch.device) -> list[Result]:
    on_gpu = device.type == "cuda"  # bounds are promised there
    results = []
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "images", Path(folder) / "cache"
        draw_photographs(root, sizes)

        def build(method: str, loss: str) -> Stepping:
            return Stepping(trial(method, loss, root, sizes), device, cache)

        config = trial("plain", FIRST[0], root, sizes)
        name = f"step of {sizes.network}, {sizes.side} px, batch {sizes.batch}"
        sides = {
            "ours": build("plain", FIRST[0]),
            "bare backbone": bare(config, device, cache),
        }
        results.append(compare(name, device, sides, 1 / 0.97 if on_gpu else None))
        for method in METHODS:
            if method == "plain":
                continue
            loss, most = loss_for(method), 2.02 if method in MIXES else 1.02
            sides = {method: build(method, loss), f"plain on {loss}": build("plain", loss)}
            results.append(compare(f"step of {method}", device, sides, most if on_gpu else None))
            sides.clear()  # the device's memory
    return results


def measure_all() -> list[Result]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes = GPU if device.type == "cuda" else CPU
    return measure_steps(sizes, device)
