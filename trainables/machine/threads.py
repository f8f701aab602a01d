"""Threads that compute side by side, each on one core.

What is small (an image to be resized) gains nothing where all cores take part in it, and loses much
where they are not free: they wait for each other at every step. So several are computed at once,
each by one thread. The results are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, islice
from typing import TypeVar

import torch

S = TypeVar("S")
T = TypeVar("T")


def map_in_threads(work: Callable[[S], T], items: Iterable[S], *, together: int = 1) -> list[T]:
    """Return `work` on each, in as many threads as torch has, none of which divides its own
    further; with gradients or without, and in inference mode or not, as the caller is: torch keeps
    both for each thread, and tensors made in that mode cannot be written outside it.

    Args:
        together: items that a thread takes at once, where each is soon done.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        return [work(item) for item in items]
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def likewise(several: list[S]) -> list[T]:
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return [work(item) for item in several]

    rest = iter(items)
    lots = iter(lambda: list(islice(rest, together)), [])
    return list(chain.from_iterable(_get_pool(threads).map(likewise, lots)))


@cache
def _get_pool(threads: int) -> ThreadPoolExecutor:
    """torch keeps a number of threads for each thread that computes, and one for those to come."""
    ready = threading.Barrier(threads)

    def alone() -> None:
        torch.get_num_threads()  # takes the number for those to come, once; after that it is ours
        torch.set_num_threads(1)
        ready.wait()  # so that each task below has a thread of its own

    pool = ThreadPoolExecutor(threads, "side by side", initializer=alone)
    list(pool.map(lambda _: None, range(threads)))
    torch.set_num_threads(threads)
    return pool
