"""Processes that train one trial: what they exchange, over torch.distributed.

Tensors of a step go by the backend of their device (NCCL between GPUs, gloo between processors);
what is said, and waited for however long, by gloo. Each call is made by all processes of a group,
in the same order.

Shape legend: B rows of a batch · P processes.
"""

from __future__ import annotations

import os
import sys
import tempfile
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
Whole = TypeVar("Whole", Tensor, Sequence[Any])
PATIENCE = timedelta(days=7)  # the others wait while the main process computes metrics
BUCKET = 2**24  # numbers that are exchanged at once
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True)
class Group:
    """Process number `rank` of P = `size`; its collectives have the names of `torch.distributed`.

    tensors, control: torch's groups, for tensors of a step and for what is said; None: this
    process is alone, and every call returns at once.
    """

    rank: int = 0
    size: int = 1
    tensors: Any = None
    control: Any = None

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes, and reads metrics."""
        return self.rank == 0

    def count_rows(self, rows: int) -> list[int]:
        """Return how many of B rows are each process's: consecutive ones, as equal as can be."""
        return [rows // self.size + (rank < rows % self.size) for rank in range(self.size)]

    def local_shard(self, whole: Whole) -> Whole:
        """Return this process's part of a sequence, or its rows of a tensor [B, ...]."""
        counts = self.count_rows(len(whole))
        begin = sum(counts[: self.rank])
        return whole[begin : begin + counts[self.rank]]

    def all_gather(self, own: Tensor, rows: int) -> Tensor:
        """Return [B, ...] of everybody's own rows, without gradient."""
        if self.size == 1:
            return own.detach()
        counts = self.count_rows(rows)
        padded = own.new_zeros(max(counts), *own.shape[1:])  # processes send equally much
        padded[: len(own)] = own.detach()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=self.tensors)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def gather(self, parts: Sequence[Tensor], device: torch.device) -> Tensor:
        """Return [N, ...] of everybody's parts in order, in the main process; in the others what
        is their own, of which nobody needs it.

        Args:
            parts: rows of this process, on `device`; none, where it has none. The main one has
                some.
        """
        own = torch.cat(list(parts)) if parts else torch.empty(0, device=device)
        if self.size == 1:
            return own
        everybody: list[Any] | None = [None] * self.size if self.is_main else None
        dist.gather_object(own.cpu(), everybody, group=self.control, group_dst=0)
        if everybody is None:
            return own
        return torch.cat([part.to(device) for part in everybody if len(part)])

    def all_reduce_(self, tensors: Sequence[Tensor]) -> None:
        """Let each become the sum of all processes', in place."""
        self._apply_collective(tensors, dist.all_reduce)

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Let each become the main process's, in place."""
        self._apply_collective(
            tensors, lambda flat, group: dist.broadcast(flat, group=group, group_src=0)
        )

    @torch.no_grad()
    def _apply_collective(self, tensors: Sequence[Tensor], collective: Callable[..., Any]) -> None:
        """Pass tensors through a collective, many at once."""
        if self.size == 1:
            return
        buckets: list[list[Tensor]] = []
        numbers = 0
        for tensor in tensors:
            numbers += tensor.numel()
            if not buckets or buckets[-1][0].dtype != tensor.dtype or numbers > BUCKET:
                buckets.append([])
                numbers = tensor.numel()
            buckets[-1].append(tensor)
        for bucket in buckets:
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            collective(flat, group=self.tensors)
            parts = torch.split(flat, [tensor.numel() for tensor in bucket])
            for tensor, part in zip(bucket, parts, strict=True):
                tensor.copy_(part.view(tensor.shape))

    def broadcast_object(self, find: Callable[[], T]) -> T:
        """Return what the main process finds, tensors on the CPU; the others wait for it."""
        if self.size == 1:
            return find()
        objects: list[Any] = [find() if self.is_main else None]
        dist.broadcast_object_list(objects, group=self.control, group_src=0)
        return cast("T", objects[0])

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Run a block in the main process before all others: it fills caches."""
        if not self.is_main:
            dist.barrier(self.control)
        yield
        if self.is_main and self.size > 1:
            dist.barrier(self.control)


ALONE = Group()


def create_rendezvous_file() -> Path:
    """Return a new file by which processes of one machine find each other."""
    return Path(tempfile.mkdtemp(prefix="ablate-group-")) / "store"


@contextmanager
def join_group(place: Path, rank: int, size: int, device: torch.device) -> Iterator[Group]:
    """Make this process one of a group in a block. They listen on this machine's loopback alone,
    unless GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name another interface.

    Args:
        place: `create_rendezvous_file` of the group's first process. device: this process's own.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    for backend in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{backend}_SOCKET_IFNAME", LOOPBACK)
    dist.init_process_group(
        "gloo", init_method=f"file://{place}", rank=rank, world_size=size, timeout=PATIENCE
    )
    try:
        world = dist.group.WORLD
        tensors = dist.new_group(backend="nccl") if device.type == "cuda" else world
        yield Group(rank, size, tensors, world)
    finally:
        dist.destroy_process_group()
