"""Photographs at a data set's true size beside torchvision's ImageFolder and torch's DataLoader.

Each part runs in a process of its own, on THREADS cores, ours and theirs in turns; the better of
ROUNDS counts. Seconds are of the wall, without imports.

- first pass: listing, hashing, decoding, resizing and writing all images, against ImageFolder with
  Resize of the same short side in a DataLoader of as many workers, whose pictures go nowhere.
- its memory: the most that the process held above what it held after the imports.
- second start: a new process that loads and divides what is there, all bytes checked.
- images a second: the batches of an epoch, cropped (RandomResizedCrop), flipped and normalised,
  from the store, against ImageFolder with these transforms in a DataLoader. Ours in a process that
  keeps freed memory, as a trial's does. Of CUB alone.

Parts also tell milliseconds of the processor an image, which say more on a shared machine.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.made_photographs import photographs
from tests.benchmarks.results import GIB, Result, cpu_seconds, forget_peak, memory, run_part

THREADS, ROUNDS, BATCH, STEPS = 2, 2, 128, 24
MEMORY, START = 500.0, 10.0  # MB, s
FASTER = {"pixels": 3.0, "encoded": 1.2}
# images, width and height, classes, side of the network's input
SIZES = {"CUB": (11_788, (500, 375), 200, 224), "SOP": (120_053, (120, 90), 22_634, 64)}


def config(root: str, side: int, **given: Any) -> Any:
    from trainables.config.images import DataConfig

    return DataConfig(name="folder", root=root, image_size=side, **given)


def first_pass(root: str, cache: str, side: int, store: str) -> dict[str, float]:
    """Load ours; where the cache is full, as a second start does."""
    from trainables.data.splits import load_splits

    forget_peak()
    before, began = memory("VmRSS"), time.perf_counter()
    load_splits(config(root, side, store=store), Path(cache))
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "megabytes": (memory("VmHWM") - before) * GIB / 1e6}


def image_folder(root: str, side: int) -> dict[str, float]:
    """Decode all images once, with the same short side."""
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import Compose, PILToTensor, Resize

    began = time.perf_counter()
    data = ImageFolder(root, Compose([Resize(config(root, side).stored_short_side), PILToTensor()]))
    for _ in DataLoader(data, 64, num_workers=THREADS, collate_fn=list):
        pass
    return {"seconds": time.perf_counter() - began}


def from_store(root: str, cache: str, side: int, store: str) -> dict[str, float]:
    """Take training batches of the store: crops of the original picture, antialiased as
    torchvision's."""
    import torch

    from trainables.data.augment import train_images
    from trainables.data.reader import Reader
    from trainables.data.splits import load_splits
    from trainables.machine.memory import keep_freed_memory
    from trainables.streams import create_generator

    torch.set_num_threads(THREADS)
    keep_freed_memory()
    crops = {"stored_side": "original", "augment": {"interpolation": "bilinear"}}
    data = config(root, side, store=store, **crops)
    splits, cpu = load_splits(data, Path(cache)), torch.device("cpu")
    rows = torch.randint(
        len(splits.train.images), (STEPS + 2, BATCH), generator=create_generator(0, "b")
    )
    reader, draws = Reader(splits.train.images.to(cpu), cpu), create_generator(0, "augment")
    reader.prefetch(rows.unbind())
    began, busy = 0.0, cpu_seconds()
    for step, batch in enumerate(rows.unbind()):
        if step == 2:  # threads and buffers are there
            began = time.perf_counter()
        images, index = reader.load_rows(batch)
        train_images(
            images,
            index,
            config=data.augment,
            size=side,
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
            generator=draws,
            device=cpu,
        )
    return _rate(began, busy)


def from_loader(root: str, side: int) -> dict[str, float]:
    """Take the same batches of ImageFolder in a DataLoader."""
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    chain = [
        transforms.RandomResizedCrop(side, (0.16, 1.0)),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
    data = ImageFolder(root, transforms.Compose(chain))
    sampler = RandomSampler(data, replacement=True, num_samples=(STEPS + 2) * BATCH)
    began, busy = 0.0, cpu_seconds()
    for step, _ in enumerate(DataLoader(data, BATCH, sampler=sampler, num_workers=THREADS)):
        if step == 1:  # its workers are there, with the next batches half made
            began = time.perf_counter()
    return _rate(began, busy)  # its workers have ended


def _rate(began: float, busy: float) -> dict[str, float]:
    """Return images a second and the processor's milliseconds an image."""
    milliseconds = 1000 * (cpu_seconds() - busy) / ((STEPS + 2) * BATCH)
    return {"rate": STEPS * BATCH / (time.perf_counter() - began), "processor": milliseconds}


PARTS = {part.__name__: part for part in (first_pass, image_folder, from_store, from_loader)}
run = partial(run_part, "data")


def measure_passes(name: str, root: str, side: int, folder: Path) -> list[Result]:
    results: list[Result] = []
    for store in FASTER:
        rounds, seconds = list[dict[str, float]](), list[float]()
        cache = folder / f"cache-{store}"
        for _ in range(ROUNDS):
            shutil.rmtree(cache, ignore_errors=True)
            rounds.append(run("first_pass", root, str(cache), side, store))
            seconds.append(run("image_folder", root, side)["seconds"])
        again = [run("first_pass", root, str(cache), side, store) for _ in range(ROUNDS)]
        first, second = (_least(each, "seconds") for each in (rounds, again))
        base, held = min(seconds), max(each["megabytes"] for each in rounds)
        results += [
            Result(f"{name}, {store}: first pass", first, "ImageFolder", base, base, "s"),
            Result(f"{name}, {store}: its memory", held, "allowed", MEMORY, MEMORY, "MB"),
            Result(f"{name}, {store}: second start", second, "allowed", START, START, "s"),
        ]
    return results


def _least(rounds: Sequence[dict[str, float]], key: str) -> float:
    return min(each[key] for each in rounds)


def measure_rates(name: str, root: str, side: int, folder: Path) -> list[Result]:
    """Measure images a second."""
    rates: dict[str, list[float]] = {store: [] for store in (*FASTER, "")}
    for _ in range(ROUNDS + 1):
        for store in FASTER:
            rates[store].append(run("from_store", root, str(folder / "cache"), side, store)["rate"])
        rates[""].append(run("from_loader", root, side)["rate"])
    base = max(rates.pop(""))
    return [
        Result(f"{name}, {store}: images", max(several), "DataLoader", base, bound, "/s", True)
        for store, several in rates.items()
        for bound in [FASTER[store] * base]
    ]


def measure_all() -> list[Result]:
    results: list[Result] = []
    for name, (images, pixels, classes, side) in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            root = str(photographs(Path(folder) / "images", images, pixels, classes))
            results += measure_passes(name, root, side, Path(folder))
            if name == "CUB":
                results += measure_rates(name, root, side, Path(folder))
    return results
