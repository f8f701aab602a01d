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

THREADS, DIM = 2, 512
GIB = 2**30
RANKS = (
    "recall_at_1", "recall_at_10", "recall_at_100", "recall_at_1000", "r_precision", "map_at_r",
    "map_at_1000",
)  # fmt: skip
Result = tuple[float, float, float]  # seconds, GiB above the embeddings, a value


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
    from trainables.evaluation import evaluate

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
    from trainables.evaluation.kmeans import kmeans, objective

    k = int(y.max()) + 1
    return objective(x, kmeans(x, k, seed=0), k)


def faiss_kmeans(x: Tensor, y: Tensor) -> float:
    import faiss

    from trainables.evaluation.kmeans import ITERATIONS, objective

    faiss.omp_set_num_threads(THREADS)
    k = int(y.max()) + 1
    made = faiss.Kmeans(
        DIM, k, niter=ITERATIONS, seed=0, min_points_per_centroid=1,
        max_points_per_centroid=len(x),
    )  # fmt: skip
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


def apart(work: Callable[[Tensor, Tensor], float], items: int, per: int | None = None) -> Result:
    """In a fresh process: its peak is that of `work`."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(work, items, per, sender))
    process.start()
    sender.close()
    try:
        found: Result = receiver.recv()
    except EOFError as error:
        raise RuntimeError(f"{work.__name__} at {items} items ended without a result") from error
    finally:
        process.join()
    return found


def line(name: str, value: float, bound: float, about: str) -> bool:
    verdict = "met" if value <= bound else "MISSED"
    print(f"  {name}: {value:.3g}, bound {bound:g}: {verdict}   ({about})", flush=True)
    return value <= bound


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=60502)
    parser.add_argument("--large", type=int, default=145000)
    parser.add_argument("--no-pml", action="store_true")
    parser.add_argument("--no-kmeans", action="store_true")
    options, _ = parser.parse_known_args()
    n, good = options.items, True
    print(f"evaluation, {n} x {DIM}, {THREADS} threads, load {os.getloadavg()[0]:.1f}:")
    # In turns, for other work on the machine; the better of two each.
    first, search, again, second = (apart(w, n) for w in (ours, faiss_search) * 2)
    own, beside = min(first[0], again[0]), min(search[0], second[0])
    both = f"{first[0]:.1f}, {again[0]:.1f} s beside {search[0]:.1f}, {second[0]:.1f} s"
    good &= line("7 ranking metrics / faiss search of 1,001", own / beside, 1.0, both)
    good &= line("their memory above the embeddings, GiB", first[1], 1.0, f"faiss {search[1]:.2f}")
    if not options.no_pml:
        theirs = apart(calculator, n)
        told = f"{own:.1f} s, 7 metrics, beside {theirs[0]:.1f} s, 3 metrics, {theirs[1]:.1f} GiB"
        good &= line("7 ranking metrics / AccuracyCalculator", own / theirs[0], 1.0, told)
        line("|MAP@R - the calculator's|", abs(first[2] - theirs[2]), 1e-4, "float32 near-ties")
    for per in (11, 80):
        seconds = apart(ours, n, per)[0]
        cost = 1e6 * seconds / (n * (per - 1))
        about = f"{seconds:.1f} s, {cost:.2f} us per positive"
        good &= line(f"{per} images a class / faiss search", seconds / beside, 1.0, about)
    if options.large:
        seconds, memory, _ = apart(ours, options.large)
        good &= line(
            f"{options.large} items, GiB above the embeddings", memory, 2.0, f"{seconds:.0f} s"
        )
    if not options.no_kmeans:
        mine, theirs = apart(our_kmeans, n), apart(faiss_kmeans, n)
        told = f"{mine[0]:.1f} s beside {theirs[0]:.1f} s"
        good &= line("k-means, k = classes / faiss, time", mine[0] / theirs[0], 1.05, told)
        told = f"{mine[2]:.0f} beside {theirs[2]:.0f}"
        good &= line("k-means objective / faiss", mine[2] / theirs[2], 1.05, told)
    print(f"  load at the end {os.getloadavg()[0]:.1f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
