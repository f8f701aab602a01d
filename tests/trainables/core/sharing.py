"""A function in each of several processes that form a group, and what it gave there."""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from trainables.machine.group import Group, join_group

Run = Callable[..., Any]
SECONDS = 120


def shared(size: int, run: Run, *given: Any, devices: Sequence[str] | None = None) -> list[Any]:
    """What `run(group, *given)` gives in each of `size` processes, which it can be pickled to.

    Args:
        devices: whose backend they exchange by, one each; None: gloo.
    """
    rendezvous = Path(tempfile.mkdtemp()) / "store"
    # Imports once, in a process that does nothing else; a group's processes are forks of it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainables.core.trainer", "tests.trainables.core_trials"])
    pipes, processes = [], []
    for rank in range(size):
        parent_end, there = context.Pipe(duplex=False)
        device = "cpu" if devices is None else devices[rank]
        process = context.Process(
            target=_inside, args=(there, rendezvous, rank, size, device, run, given)
        )
        process.daemon = True
        process.start()
        there.close()
        pipes.append(parent_end)
        processes.append(process)
    try:
        actual = []
        for rank, pipe in enumerate(pipes):
            assert pipe.poll(SECONDS), f"process {rank} of {size} says nothing"
            error, value = pipe.recv()
            assert error is None, f"process {rank} of {size}:\n{error}"
            actual.append(torch.load(io.BytesIO(value), weights_only=False))
        return actual
    finally:
        for process in processes:
            process.kill()
            process.join()
        shutil.rmtree(rendezvous.parent)


def _inside(  # noqa: PLR0917
    pipe: Connection,
    place: Path,
    rank: int,
    size: int,
    device: str,
    run: Run,
    given: tuple[Any, ...],
) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    try:
        with join_group(place, rank, size, torch.device(device)) as group:
            value = run(group, *given)
        # By value: shared memory would go with this process.
        buffer = io.BytesIO()
        torch.save(value, buffer)
        pipe.send((None, buffer.getvalue()))
    except BaseException:
        pipe.send((traceback.format_exc(), None))


def subgroup(group: Group, size: int) -> Group | None:
    """The first `size` processes of a group, in each of them; all call it."""
    import torch.distributed as dist

    subset = dist.new_group(list(range(size)))
    return Group(group.rank, size, subset, subset) if group.rank < size else None
