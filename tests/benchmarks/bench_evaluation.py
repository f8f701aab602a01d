"""Evaluation at SOP's size beside faiss and pytorch-metric-learning; a line a number.

Each part runs in a process of its own, one after the other, on THREADS cores; seconds are of the
wall, memory is the most a process held above what it held with the embeddings made. Compiling
is not in (a small set comes first). Embeddings are drawn: class centres and noise, unit length.

    python -m tests.benchmarks.bench_evaluation [--items 60502] [--large 145000] [--no-pml]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tests.benchmarks.results import Result, table

THREADS, DIM = 2, 512
GIB = 2**30
RANKS = (
    "recall_at_1",
    "recall_at_10",
    "recall_at_100",
    "recall_at_1000",
    "r_precision",
    "map_at_r",
    "map_at_1000",
)
Run = tuple[float, float, float]  # seconds, GiB above the embeddings, a value


def drawn(items: int, per_class: int | None, spread: float = 1.3) -> tuple[Tensor, Tensor]:
    """[N, 512] and labels. per_class None: sizes 2 … 12 around 5.35, as in SOP."""
    g = torch.Generator().manual_seed(0)
    if per_class is None:
        shares = torch.tensor([0.08, 0.17, 0.17, 0.16, 0.13, 0.09, 0.07, 0.05, 0.03, 0.02, 0.03])
        sizes = torch.multinomial(shares, items // 2, replacement=True, generator=g) + 2
        labels = torch.repeat_interleave(sizes)[:items]
    else:
        labels = torch.arange(items) // per_class
    x = torch.empty(items, DIM)
    centres = torch.randn(int(labels.max()) + 1, DIM, generator=g)
    shuffled = labels[torch.randperm(items, generator=g)]
    for first in range(0, items, 8192):  # no second copy of all: it would hide later peaks
        part = shuffled[first : first + 8192]
        noise = torch.randn(len(part), DIM, generator=g)
        x[first : first + 8192] = torch.nn.functional.normalize(
            centres[part] + spread * noise, dim=1
        )
    return x, shuffled


def memory(field: str) -> float:
    """VmRSS (now) or VmHWM (its peak) of this process, GiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kib) * 1024 / GIB


def forget_peak() -> None:
    """Sets VmHWM to VmRSS (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def ours(x: Tensor, y: Tensor) -> float:
    from trainables.evaluation.metrics import evaluate

    return evaluate(x, y, score="cosine", metrics=RANKS)["map_at_r"]


def faiss_search(x: Tensor, y: Tensor) -> float:
    import faiss

    faiss.omp_set_num_threads(THREADS)
    index = faiss.IndexFlatIP(DIM)
    index.add(x.numpy())
    return float(index.search(x.numpy(), 1001)[0][0, 0])


def calculator(x: Tensor, y: Tensor) -> float:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    made = AccuracyCalculator(include=names, k="max_bin_count", device=torch.device("cpu"))
    return float(made.get_accuracy(x, y)["mean_average_precision_at_r"])


def our_kmeans(x: Tensor, y: Tensor) -> float:
    from trainables.evaluation.clustering import kmeans, objective

    k = int(y.max()) + 1
    return objective(x, kmeans(x, k, seed=0), k)


def faiss_kmeans(x: Tensor, y: Tensor) -> float:
    import faiss

    from trainables.evaluation.clustering import ITERATIONS, objective

    faiss.omp_set_num_threads(THREADS)
    k = int(y.max()) + 1
    made = faiss.Kmeans(
        DIM,
        k,
        niter=ITERATIONS,
        seed=0,
        min_points_per_centroid=1,
        max_points_per_centroid=len(x),
    )
    made.train(x.numpy())
    return objective(x, torch.from_numpy(made.index.search(x.numpy(), 1)[1][:, 0]), k)


def child(
    work: Callable[[Tensor, Tensor], float], items: int, per: int | None, sender: object
) -> None:
    torch.set_num_threads(THREADS)
    work(*drawn(3000, 5))
    x, y = drawn(items, per)
    forget_peak()
    before, began = memory("VmRSS"), time.perf_counter()
    value = work(x, y)
    seconds = time.perf_counter() - began
    sender.send((seconds, memory("VmHWM") - before, value))  # type: ignore[attr-defined]


def apart(work: Callable[[Tensor, Tensor], float], items: int, per: int | None = None) -> Run:
    """In a fresh process: its peak is that of `work`."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(work, items, per, sender))
    process.start()
    sender.close()
    try:
        found: Run = receiver.recv()
    except EOFError as error:
        raise RuntimeError(f"{work.__name__} at {items} items ended without a result") from error
    finally:
        process.join()
    return found


def measure(items: int, large: int, *, pml: bool = True, clusters: bool = True) -> list[Result]:
    """One result per acceptance number; the rounds are printed as they come."""
    print(f"{items} x {DIM}, {THREADS} threads, load {os.getloadavg()[0]:.1f}", flush=True)
    # In turns, for other work on the machine; the better of two each.
    first, search, again, second = (apart(w, items) for w in (ours, faiss_search) * 2)
    own, beside = min(first[0], again[0]), min(search[0], second[0])
    print(f"  ours {first[0]:.1f}, {again[0]:.1f} s; faiss {search[0]:.1f}, {second[0]:.1f} s")
    found = [
        Result("7 ranking metrics", own, "faiss search of 1,001", beside, beside, "s"),
        Result("their memory above x", first[1], "faiss", search[1], 1.0, "GiB"),
    ]
    if pml:
        seconds, _, value = apart(calculator, items)
        found += [
            Result("7 ranking metrics", own, "AccuracyCalculator, 3", seconds, seconds, "s"),
            Result("MAP@R", first[2], "AccuracyCalculator", value, value + 1e-4, "of 1"),
        ]
    for per in (11, 80):
        seconds = apart(ours, items, per)[0]
        print(f"  {per} a class: {1e6 * seconds / (items * (per - 1)):.2f} us per positive")
        found.append(Result(f"{per} images a class", seconds, "faiss search", beside, beside, "s"))
    if large:
        seconds, held, _ = apart(ours, large)
        print(f"  {large} items: {seconds:.0f} s", flush=True)
        found.append(Result(f"{large} items above x", held, "allowed", 2.0, 2.0, "GiB"))
    if clusters:
        mine, theirs = apart(our_kmeans, items), apart(faiss_kmeans, items)
        found += [
            Result("k-means, k = classes", mine[0], "faiss", theirs[0], 1.05 * theirs[0], "s"),
            Result("its objective", mine[2], "faiss", theirs[2], 1.05 * theirs[2], ""),
        ]
    return found


def measure_all() -> list[Result]:
    return measure(60_502, 145_000)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=60_502)
    parser.add_argument("--large", type=int, default=145_000)
    parser.add_argument("--no-pml", action="store_true")
    parser.add_argument("--no-kmeans", action="store_true")
    given = parser.parse_args()
    found = measure(given.items, given.large, pml=not given.no_pml, clusters=not given.no_kmeans)
    print(f"{table(found)}\nload at the end {os.getloadavg()[0]:.1f}")
    return 0 if all(result.met for result in found) else 1


if __name__ == "__main__":
    sys.exit(main())
