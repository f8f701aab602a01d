"""Photographs at a data set's true size beside torchvision's ImageFolder and torch's DataLoader.

Each part runs in a process of its own, on THREADS cores, ours and theirs in turns; the better of
ROUNDS counts. Seconds are of the wall, without imports.

- first pass: listing, hashing, decoding, resizing and writing all images, against ImageFolder with
  Resize of the same short side in a DataLoader of as many workers, whose pictures go nowhere.
- its memory: the most that the process held above what it held after the imports.
- second start: a new process that loads and divides what is there, all bytes checked.
- images a second: the batches of an epoch, cropped (RandomResizedCrop), flipped and normalised,
  from the store, against ImageFolder with these transforms in a DataLoader. Ours in a process that
  keeps freed memory, as a trial's does. The parts also tell milliseconds of the processor an image,
  with all workers', which on a shared machine say more than the clock.

    python -m tests.benchmarks.bench_data [--cub 11788] [--sop 120053] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

from tests.benchmarks.made_photographs import photographs
from tests.benchmarks.results import Result, table

THREADS, ROUNDS, BATCH, STEPS = 2, 2, 128, 24
MEMORY, START = 500.0, 10.0  # MB, s
FASTER = {"pixels": 3.0, "encoded": 1.2}


@dataclass(frozen=True)
class Size:
    """A data set's: images, width and height, classes, side of the network's input."""

    name: str
    images: int
    pixels: tuple[int, int]
    classes: int
    side: int


def config(root: Path, side: int, **given: Any) -> Any:
    from trainables.config.images import DataConfig

    return DataConfig(name="folder", root=str(root), image_size=side, **given)


def processor() -> float:
    """Seconds of this process and of those that it started and that have ended."""
    own, of_children = (getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in (own, of_children))


def first_pass(root: Path, cache: Path, side: int, store: str) -> dict[str, float]:
    """Ours; also a second start, where the cache is full."""
    from tests.benchmarks.bench_evaluation import forget_peak, memory
    from trainables.data.splits import load_splits

    forget_peak()
    before, began = memory("VmRSS"), time.perf_counter()
    splits = load_splits(config(root, side, store=store), cache)
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "megabytes": (memory("VmHWM") - before) * 2**30 / 1e6,
        "images": len(splits.train.images),
    }


def image_folder(root: Path, cache: Path, side: int, store: str) -> dict[str, float]:
    """All images once, with the same short side."""
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import Compose, PILToTensor, Resize

    began = time.perf_counter()
    kept = config(root, side).kept
    data = ImageFolder(str(root), Compose([Resize(kept), PILToTensor()]))
    seen = sum(len(batch) for batch in DataLoader(data, 64, num_workers=THREADS, collate_fn=list))
    return {"seconds": time.perf_counter() - began, "images": seen}


def from_store(root: Path, cache: Path, side: int, store: str) -> dict[str, float]:
    """Training batches of the store: crops of the original picture, antialiased as torchvision's;
    `thumbnails` cuts them of what evaluation needs, as without options."""
    import torch

    from trainables.data.augment import train_images
    from trainables.data.reader import Reader
    from trainables.data.splits import load_splits
    from trainables.machine.memory import keep_freed_memory
    from trainables.streams import generator

    torch.set_num_threads(THREADS)
    keep_freed_memory()
    given: dict[str, Any] = {"store": store.removeprefix("thumbnails ")}
    if not store.startswith("thumbnails"):
        given |= {"stored_side": "original", "augment": {"interpolation": "bilinear"}}
    data = config(root, side, **given)
    splits, cpu = load_splits(data, cache), torch.device("cpu")
    rows = torch.randint(len(splits.train.images), (STEPS + 2, BATCH), generator=generator(0, "b"))
    reader, draws = Reader(splits.train.images.to(cpu), cpu), generator(0, "augment")
    reader.expect(rows.unbind())
    began, busy = 0.0, processor()
    for step, batch in enumerate(rows.unbind()):
        if step == 2:  # threads and buffers are there
            began = time.perf_counter()
        images, index = reader.take(batch)
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
    return {
        "rate": STEPS * BATCH / (time.perf_counter() - began),
        "processor": 1000 * (processor() - busy) / rows.numel(),
    }


def from_loader(root: Path, cache: Path, side: int, store: str) -> dict[str, float]:
    """The same batches of ImageFolder in a DataLoader."""
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import (
        Compose,
        Normalize,
        RandomHorizontalFlip,
        RandomResizedCrop,
        ToTensor,
    )

    chain = Compose(
        [
            RandomResizedCrop(side, (0.16, 1.0)),
            RandomHorizontalFlip(),
            ToTensor(),
            Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    data = ImageFolder(str(root), chain)
    sampler = RandomSampler(data, replacement=True, num_samples=(STEPS + 2) * BATCH)
    began, busy = 0.0, processor()
    for step, _ in enumerate(DataLoader(data, BATCH, sampler=sampler, num_workers=THREADS)):
        if step == 1:  # its workers are there, with the next batches half made
            began = time.perf_counter()
    return {
        "rate": STEPS * BATCH / (time.perf_counter() - began),
        "processor": 1000 * (processor() - busy) / len(sampler),  # its workers have ended
    }


PARTS: dict[str, Callable[[Path, Path, int, str], dict[str, float]]] = {
    part.__name__: part for part in (first_pass, image_folder, from_store, from_loader)
}


def apart(part: str, root: Path, cache: Path, side: int, store: str = "pixels") -> dict[str, float]:
    """One part in a process of its own."""
    given = (part, str(root), str(cache), str(side), store)
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.bench_data", "--part", *given],
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},  # on a shared machine waiting is no work
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{part} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    told = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
    print(f"  {part} {store}: {told}; load {os.getloadavg()[0]:.1f}", flush=True)
    return found


def measured(size: Size, folder: Path, stores: tuple[str, ...]) -> list[Result]:
    root = photographs(folder / "images", size.images, size.pixels, size.classes)
    results: list[Result] = []
    for store in stores:
        ours, theirs = list[dict[str, float]](), list[dict[str, float]]()
        for number in range(ROUNDS):
            cache = folder / f"cache-{store}-{number}"
            ours.append(apart("first_pass", root, cache, size.side, store))
            theirs.append(apart("image_folder", root, cache, size.side, store))
            if number + 1 < ROUNDS:
                shutil.rmtree(cache)
        again = [apart("first_pass", root, cache, size.side, store) for _ in range(ROUNDS)]
        shutil.rmtree(cache)
        beside = min(each["seconds"] for each in theirs)
        name = f"{size.name}, {store}"
        results += [
            Result(
                f"{name}: first pass",
                min(each["seconds"] for each in ours),
                "ImageFolder",
                beside,
                beside,
                "s",
            ),
            Result(
                f"{name}: its memory",
                max(each["megabytes"] for each in ours),
                "allowed",
                MEMORY,
                MEMORY,
                "MB",
            ),
            Result(
                f"{name}: second start",
                min(each["seconds"] for each in again),
                "allowed",
                START,
                START,
                "s",
            ),
        ]
    return results


def rates(size: Size, folder: Path) -> list[Result]:
    """Images a second."""
    root, cache = folder / "images", folder / "cache"
    if not root.exists():
        photographs(root, size.images, size.pixels, size.classes)
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS + 1):
        for store in (*FASTER, "thumbnails pixels"):
            found.setdefault(store, []).append(
                apart("from_store", root, cache, size.side, store)["rate"]
            )
        found.setdefault("", []).append(apart("from_loader", root, cache, size.side)["rate"])
    beside = max(found.pop(""))
    return [
        Result(
            f"{size.name}, {store}: images",
            max(several),
            "DataLoader",
            beside,
            FASTER[store.split()[-1]] * beside,
            "a second",
            at_least=True,
        )
        for store, several in found.items()
    ]


def measure_all(cub: int = 11_788, sop: int = 120_053, folder: str | None = None) -> list[Result]:
    results: list[Result] = []
    birds = Size(f"{cub} of 500 × 375", cub, (500, 375), max(2, cub // 59), 224)
    products = Size(f"{sop} of 120 × 90", sop, (120, 90), max(2, sop * 22_634 // 120_053), 64)
    for size in (birds, products):
        if not size.images:
            continue
        with tempfile.TemporaryDirectory(dir=folder) as place:
            both = ("pixels", "encoded")
            results += measured(size, Path(place), both)
            if size is birds:
                results += rates(size, Path(place))
    return results


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cub", type=int, default=11_788)
    parser.add_argument("--sop", type=int, default=120_053)
    parser.add_argument("--folder")
    parser.add_argument("--part", nargs=5)
    given = parser.parse_args()
    if given.part:
        part, root, cache, side, store = given.part
        print(json.dumps(PARTS[part](Path(root), Path(cache), int(side), store)))
        return 0
    results = measure_all(given.cub, given.sop, given.folder)
    print(f"{table(results)}\nload at the end {os.getloadavg()[0]:.1f}")
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
