"""Evaluation at SOP's size beside faiss and pytorch-metric-learning.

Each part runs in a process of its own, one after the other, on THREADS cores; seconds are of the
wall, memory is the most a process held above what it held with the embeddings made. Compiling
is not in (a small set comes first). Embeddings are drawn: class centres and noise, unit length.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tests.benchmarks.results import Result, forget_peak, memory, run_part

THREADS, DIM = 2, 512
ITEMS = 60_502
RANKS = (
    *("recall_at_1", "recall_at_10", "recall_at_100", "recall_at_1000"),
    *("r_precision", "map_at_r", "map_at_1000"),
)


def drawn(items: int) -> tuple[Tensor, Tensor]:
    """Draw [N, 512] and labels, in classes of 2 … 12 around 5.35 items, as in SOP."""
    g = torch.Generator().manual_seed(0)
    shares = torch.tensor([0.08, 0.17, 0.17, 0.16, 0.13, 0.09, 0.07, 0.05, 0.03, 0.02, 0.03])
    sizes = torch.multinomial(shares, items // 2, replacement=True, generator=g) + 2
    labels = torch.repeat_interleave(sizes)[:items]
    x = torch.empty(items, DIM)
    centres = torch.randn(int(labels.max()) + 1, DIM, generator=g)
    shuffled = labels[torch.randperm(items, generator=g)]
    for first in range(0, items, 8192):  # no second copy of all: it would hide later peaks
        part = shuffled[first : first + 8192]
        noise = torch.randn(len(part), DIM, generator=g)
        x[first : first + 8192] = torch.nn.functional.normalize(centres[part] + 1.3 * noise, dim=1)
    return x, shuffled


def ours(x: Tensor, y: Tensor) -> float:
    from trainables.evaluation.metrics import evaluate_embeddings

    return evaluate_embeddings(x, y, score="cosine", metrics=RANKS)["map_at_r"]


def faiss_search(x: Tensor, y: Tensor) -> float:
    import faiss

    faiss.omp_set_num_threads(THREADS)
    index = faiss.IndexFlatIP(DIM)
    index.add(x.numpy())
    return float(index.search(x.numpy(), 1001)[0][0, 0])


def calculator(x: Tensor, y: Tensor) -> float:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    accuracy = AccuracyCalculator(include=names, k="max_bin_count", device=torch.device("cpu"))
    return float(accuracy.get_accuracy(x, y)["mean_average_precision_at_r"])


def measure_part(work: Callable[[Tensor, Tensor], float], items: int) -> dict[str, float]:
    """Return seconds, GiB above the embeddings, and the value of `work`."""
    torch.set_num_threads(THREADS)
    work(*drawn(3000))
    x, y = drawn(items)
    forget_peak()
    before, began = memory("VmRSS"), time.perf_counter()
    value = work(x, y)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "gib": memory("VmHWM") - before, "value": value}


PARTS = {work.__name__: partial(measure_part, work) for work in (ours, faiss_search, calculator)}


def measure_all(items: int = ITEMS) -> list[Result]:
    run = partial(run_part, "evaluation")
    # In turns, for other work on the machine; the better of two each.
    first, search, again, second = (run(part, items) for part in ("ours", "faiss_search") * 2)
    seconds_ours = min(first["seconds"], again["seconds"])
    base = min(search["seconds"], second["seconds"])
    theirs = run("calculator", items)
    seconds, bound = theirs["seconds"], theirs["value"] + 1e-4
    return [
        Result("7 ranking metrics", seconds_ours, "faiss search of 1,001", base, base, "s"),
        Result("their memory above x", first["gib"], "faiss", search["gib"], 1.0, "GiB"),
        Result("7 ranking metrics", seconds_ours, "AccuracyCalculator, 3", seconds, seconds, "s"),
        Result("MAP@R", first["value"], "AccuracyCalculator", theirs["value"], bound, "of 1"),
    ]
