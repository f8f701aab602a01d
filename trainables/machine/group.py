"""Communicate between the processes of one trial, over torch.distributed.

A step's tensors use the backend of their device (NCCL for GPUs, gloo for CPUs). Python objects and
barriers use gloo with a long timeout. All processes of a group must make the same calls in the same
order.

Shape legend: B rows of a batch · P processes.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
Rows = TypeVar("Rows", Tensor, Sequence[Any])
PATIENCE = timedelta(days=7)  # others wait while the main process computes metrics
BUCKET = 2**24  # most numbers in one collective
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True)
class Group:
    """Collectives of a trial's processes, with the names of `torch.distributed`."""

    rank: int = 0  # number of this process
    size: int = 1  # P; with 1, every call returns at once
    tensors: Any = None  # torch's process group for tensors of a step
    control: Any = None  # torch's process group for objects and barriers

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, which writes files and computes metrics."""
        return self.rank == 0

    def count_rows(self, rows: int) -> list[int]:
        """Divide B rows into consecutive shards of nearly equal size; return their sizes."""
        return [rows // self.size + (rank < rows % self.size) for rank in range(self.size)]

    def local_shard(self, rows: Rows) -> Rows:
        """Return this rank's shard of a sequence or of the rows of a tensor [B, ...]."""
        counts = self.count_rows(len(rows))
        begin = sum(counts[: self.rank])
        return rows[begin : begin + counts[self.rank]]

    def all_gather(self, own: Tensor, rows: int) -> Tensor:
        """Return to each rank the rows of all ranks, [B, ...] with B = `rows`, without gradient."""
        if self.size == 1:
            return own.detach()
        counts = self.count_rows(rows)
        padded = own.new_zeros(max(counts), *own.shape[1:])  # all ranks must send equal shapes
        padded[: len(own)] = own.detach()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=self.tensors)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def gather(self, parts: Sequence[Tensor], device: torch.device) -> Tensor:
        """Return to the main process the concatenated parts of all ranks, [N, ...] on `device`.

        A rank may have no parts. To all other ranks only the parts that they passed are returned.
        """
        own = torch.cat(list(parts)) if parts else torch.empty(0, device=device)
        if self.size == 1:
            return own
        gathered: list[Any] | None = [None] * self.size if self.is_main else None
        dist.gather_object(own.cpu(), gathered, group=self.control, group_dst=0)
        if gathered is None:
            return own
        return torch.cat([part.to(device) for part in gathered if len(part)])

    def all_reduce_(self, tensors: Sequence[Tensor]) -> None:
        """Sum each tensor over all ranks, in place."""
        self._apply_collective(tensors, dist.all_reduce)

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite each tensor, in place, with the main process's values."""
        self._apply_collective(
            tensors, lambda flat, group: dist.broadcast(flat, group=group, group_src=0)
        )

    @torch.no_grad()
    def _apply_collective(self, tensors: Sequence[Tensor], collective: Callable[..., Any]) -> None:
        """Apply a collective operation to tensors in place; join them in buckets to save calls."""
        if self.size == 1:
            return
        buckets: list[list[Tensor]] = []
        numbers = 0  # in the last bucket
        for tensor in tensors:
            numbers += tensor.numel()
            if not buckets or buckets[-1][0].dtype != tensor.dtype or numbers > BUCKET:
                buckets.append([])  # because the last bucket is full, or of another type
                numbers = tensor.numel()
            buckets[-1].append(tensor)
        for bucket in buckets:
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            collective(flat, group=self.tensors)
            parts = torch.split(flat, [tensor.numel() for tensor in bucket])
            for tensor, part in zip(bucket, parts, strict=True):
                tensor.copy_(part.view(tensor.shape))

    def broadcast_object(self, function: Callable[[], T]) -> T:
        """Run `function` on the main process, and return its result (tensors on the CPU) to all."""
        if self.size == 1:
            return function()
        objects: list[Any] = [function() if self.is_main else None]
        dist.broadcast_object_list(objects, group=self.control, group_src=0)
        return cast("T", objects[0])

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Run a block on the main process first, so that the others find filled caches."""
        if not self.is_main:
            dist.barrier(self.control)  # waits until the main process has run the block
        yield
        if self.is_main and self.size > 1:
            dist.barrier(self.control)  # lets all other processes begin


ALONE = Group()


@contextmanager
def join_group(rendezvous: Path, rank: int, size: int, device: torch.device) -> Iterator[Group]:
    """Run a block in a process group of torch.distributed; yield this process's `Group`.

    The processes find each other through the file `rendezvous`, which must not exist before. They
    use only the loopback interface, unless GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name another.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    for backend in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{backend}_SOCKET_IFNAME", LOOPBACK)
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size, timeout=PATIENCE
    )
    try:
        world = dist.group.WORLD
        tensors = dist.new_group(backend="nccl") if device.type == "cuda" else world
        yield Group(rank, size, tensors, world)
    finally:
        dist.destroy_process_group()
