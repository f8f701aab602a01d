"""Training from JPEG files: ours beside pytorch-metric-learning's trainer, and a bare backbone.

EfficientNet-Lite0 with frozen BatchNorm, 64 px, batches of 64, Proxy-Anchor, AdamW, and made
photographs of 500 × 375 (`made_photographs.py`). Ours is `Trainer.step` from the store, caches
warm; theirs `MetricLossOnly` on torchvision's ImageFolder with the same transforms and two workers;
bare is timm's backbone on one batch in memory, forward, backward and optimiser, with the mean of
the features for a loss. Each side runs in a process of its own, on THREADS cores, in turns. Told
are milliseconds of the processor an image, with all workers' and without the start, the least of
ROUNDS: other work on the machine changes them less than it does the clock.

    python -m tests.benchmarks.bench_training
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.bench_data import processor
from tests.benchmarks.made_photographs import photographs
from tests.benchmarks.results import Result, table

THREADS, ROUNDS, BATCH, WARM, STEPS, SIDE = 2, 2, 64, 2, 8, 64
IMAGES, CLASSES = 800, 40  # of which 14 classes train
NETWORK = "tf_efficientnet_lite0"


def ours(root: Path, cache: Path) -> float:
    """Milliseconds an image."""
    from trainables.core.runtime import Runtime
    from trainables.core.trace import Trace
    from trainables.core.trainer import Trainer
    from trainables.trial import TrialConfig

    config = TrialConfig(
        data={"name": "folder", "root": str(root), "image_size": SIDE},
        embedding={"dim": 256},
        loss={"name": "proxy_anchor"},
        training={"epochs": 4, "batch_size": BATCH, "per_class": 8},
    )
    trainer = Trainer(config, 0, Runtime(cache_dir=cache, device="cpu", threads=THREADS))
    batches = torch.cat([trainer.batches(epoch) for epoch in range(4)])[: WARM + STEPS]
    trainer.inputs.expect(batches)
    trainer.network.enter("main", trainer.parameters)

    def step(number: int) -> None:
        trainer.trace = Trace(1, trainer.steps)
        trainer.step(batches[number], "main")

    return per_image(step)


def theirs(root: Path, cache: Path) -> float:
    """Milliseconds an image: of all steps less those of the first, workers' starts among them."""
    few = _theirs(root, WARM)
    return (_theirs(root, WARM + STEPS) - few) * 1000 / (STEPS * BATCH)


def _theirs(root: Path, steps: int) -> float:
    from pytorch_metric_learning import losses, samplers, trainers
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import (
        Compose,
        Normalize,
        RandomHorizontalFlip,
        RandomResizedCrop,
        ToTensor,
    )

    shape = RandomResizedCrop(SIDE, (0.16, 1.0)), RandomHorizontalFlip()
    data = ImageFolder(str(root), Compose([*shape, ToTensor(), Normalize((0.5,) * 3, (0.5,) * 3)]))
    trunk, head = backbone(), torch.nn.Linear(1280, 256)
    loss = losses.ProxyAnchorLoss(len(data.classes), 256)
    models = {"trunk": trunk, "embedder": head, "metric_loss": loss}
    trainer = trainers.MetricLossOnly(
        {name: models[name] for name in ("trunk", "embedder")},
        {f"{name}_optimizer": adamw(model) for name, model in models.items()},
        BATCH,
        {"metric_loss": loss},
        data,
        iterations_per_epoch=steps,
        data_device=torch.device("cpu"),
        sampler=samplers.MPerClassSampler(data.targets, 8, BATCH, steps * BATCH),
        freeze_trunk_batchnorm=True,
        dataloader_num_workers=THREADS,
    )
    before = processor()
    trainer.train(num_epochs=1)
    del trainer.dataloader_iter  # its workers end, and count
    return processor() - before


def bare(root: Path, cache: Path) -> float:
    """Milliseconds an image."""
    model = backbone().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()
    optimizer = adamw(model)
    batch = torch.randn(BATCH, 3, SIDE, SIDE).contiguous(memory_format=torch.channels_last)

    def step(number: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        model(batch).mean().backward()
        optimizer.step()

    return per_image(step)


def backbone() -> torch.nn.Module:
    import timm

    made: torch.nn.Module = timm.create_model(NETWORK, num_classes=0)
    return made


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-4, fused=True)


def per_image(step: Callable[[int], None]) -> float:
    before = 0.0
    for number in range(WARM + STEPS):
        if number == WARM:
            before = processor()
        step(number)
    return 1000 * (processor() - before) / (STEPS * BATCH)


SIDES: dict[str, Callable[[Path, Path], float]] = {
    side.__name__: side for side in (ours, theirs, bare)
}


def apart(side: str, root: Path, cache: Path) -> float:
    """One side in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.bench_training", side, str(root), str(cache)],
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},  # waiting is no work
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{side} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found: Any = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"  {side}: {found:.3g} ms an image; load {os.getloadavg()[0]:.1f}", flush=True)
    return float(found)


def measure_all() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        root = photographs(Path(folder) / "images", IMAGES, (500, 375), CLASSES)
        found: dict[str, list[float]] = {side: [] for side in SIDES}
        for _ in range(ROUNDS):
            for side, several in found.items():
                several.append(apart(side, root, Path(folder) / "cache"))
    least = {side: min(several) for side, several in found.items()}
    return [
        Result("training image, CPU", least["ours"], name, least[side], None, "ms")
        for side, name in (("theirs", "PML's trainer"), ("bare", "bare backbone"))
    ]


def main(given: list[str]) -> int:
    if given:
        side, root, cache = given
        torch.set_num_threads(THREADS)
        print(json.dumps(SIDES[side](Path(root), Path(cache))))
        return 0
    print(table(measure_all()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
