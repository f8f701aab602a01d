"""Map a function over items in threads that each use one core.

Dividing a small operation, such as resizing one image, among all cores gains nothing and waits for
the slowest core. Therefore each thread computes whole items. The results are the same.
"""

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
    """Apply `work` to each item in as many threads as torch has; return the results in order.

    The threads inherit the caller's gradient and inference modes, which torch stores per thread.
    A thread takes `together` items at once; more is faster for short work.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        return [work(item) for item in items]
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def run_chunk(chunk: list[S]) -> list[T]:
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return [work(item) for item in chunk]

    iterator = iter(items)
    chunks = iter(lambda: list(islice(iterator, together)), [])  # until a chunk is empty
    return list(chain.from_iterable(_get_pool(threads).map(run_chunk, chunks)))


@cache
def _get_pool(threads: int) -> ThreadPoolExecutor:
    """Create a pool of threads in each of which torch computes with one core."""
    ready = threading.Barrier(threads)

    def use_one_core() -> None:
        torch.get_num_threads()  # initialises the setting that the next line changes
        torch.set_num_threads(1)
        ready.wait()  # until all threads of the pool have started

    pool = ThreadPoolExecutor(threads, thread_name_prefix="side by side", initializer=use_one_core)
    list(pool.map(lambda _: None, range(threads)))  # starts all threads
    torch.set_num_threads(threads)  # restores the caller's number of threads
    return pool
