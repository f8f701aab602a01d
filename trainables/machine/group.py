"""Processes that train one trial: what they exchange, over torch.distributed.

Tensors of a step go by the backend of their device (NCCL between GPUs, gloo between processors);
what is said, and waited for however long, by gloo. Each call is made by all processes of a group,
in the same order.

Shape legend: B rows of a batch · P processes.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
PATIENCE = timedelta(days=7)  # the others wait while the first computes metrics
BUCKET = 2**24  # numbers that are exchanged at once
LOOPBACK = ("lo", "lo0")  # of Linux, of macOS


@dataclass(frozen=True)
class Group:
    """Of P = `size` processes this is number `rank`.

    tensors, told_by: torch's groups; None: this process is alone, and every call returns at once.
    """

    rank: int = 0
    size: int = 1
    tensors: Any = None
    told_by: Any = None

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes, and reads metrics."""
        return self.rank == 0

    def counts(self, rows: int) -> list[int]:
        """How many of B rows are each process's: consecutive ones, as equal as can be."""
        return [rows // self.size + (rank < rows % self.size) for rank in range(self.size)]

    def own(self, whole: Tensor) -> Tensor:
        """This process's rows of [B, ...]."""
        return torch.split(whole, self.counts(len(whole)))[self.rank]

    def gathered(self, own: Tensor, rows: int) -> Tensor:
        """[B, ...] of everybody's own rows, without gradient."""
        if self.size == 1:
            return own.detach()
        counts = self.counts(rows)
        padded = own.new_zeros(max(counts), *own.shape[1:])  # processes send equally much
        padded[: len(own)] = own.detach()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=self.tensors)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def share(self, parts: Sequence[T]) -> Sequence[T]:
        """This process's of a sequence: consecutive ones, as equally many as can be."""
        counts = self.counts(len(parts))
        begin = sum(counts[: self.rank])
        return parts[begin : begin + counts[self.rank]]

    def collected(self, parts: Sequence[Tensor], device: torch.device) -> Tensor:
        """[N, ...] of everybody's parts in order, in the first process; in the others what is
        their own, of which nobody needs it.

        Args:
            parts: rows of this process, on `device`; none, where it has none. The first has some.
        """
        own = torch.cat(list(parts)) if parts else torch.empty(0, device=device)
        if self.size == 1:
            return own
        rows = torch.tensor(len(own))
        counts = [torch.zeros_like(rows) for _ in range(self.size)]
        dist.all_gather(counts, rows, group=self.told_by)
        shape, dtype = self.told(lambda: (list(own.shape[1:]), own.dtype))
        padded = torch.zeros(int(max(counts)), *shape, dtype=dtype, device=device)
        if parts:
            padded[: len(own)] = own
        found = [torch.empty_like(padded) for _ in counts] if self.leads else None
        dist.gather(padded, found, dist.get_global_rank(self.tensors, 0), group=self.tensors)
        if found is None:
            return own
        return torch.cat([part[: int(count)] for part, count in zip(found, counts, strict=True)])

    @torch.no_grad()
    def add_(self, tensors: Sequence[Tensor]) -> None:
        """Each becomes the sum of all processes', in place."""
        if self.size > 1:
            for bucket in _buckets(tensors):
                flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
                dist.all_reduce(flat, group=self.tensors)
                _unpack(flat, bucket)

    @torch.no_grad()
    def like_first_(self, tensors: Sequence[Tensor]) -> None:
        """Each becomes the first process's, in place."""
        if self.size > 1:
            for bucket in _buckets(tensors):
                flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
                dist.broadcast(flat, dist.get_global_rank(self.tensors, 0), group=self.tensors)
                _unpack(flat, bucket)

    def told(self, find: Callable[[], T]) -> T:
        """What the first process finds, tensors and plain values, on the CPU; the others wait for
        it. It goes as torch saves it and is read as weights are, which runs no code."""
        if self.size == 1:
            return find()
        first = dist.get_global_rank(self.told_by, 0)
        found, file = (find() if self.leads else None), BytesIO()
        if self.leads:
            torch.save(found, file)
        length = torch.tensor(file.tell())
        dist.broadcast(length, first, group=self.told_by)
        content = torch.zeros(int(length), dtype=torch.uint8)
        if self.leads:
            content = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
        dist.broadcast(content, first, group=self.told_by)
        if self.leads:
            return cast("T", found)
        heard: T = torch.load(
            BytesIO(content.numpy().tobytes()), map_location="cpu", weights_only=True
        )
        return heard

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """A block that the first process goes through before all others: it fills caches."""
        if not self.leads:
            self.told(lambda: None)
        yield
        if self.leads:
            self.told(lambda: None)


ALONE = Group()


def meeting_place() -> Path:
    """A new file by which processes of one machine find each other."""
    return Path(tempfile.mkdtemp(prefix="ablate-group-")) / "store"


@contextmanager
def joined(place: Path, rank: int, size: int, device: torch.device) -> Iterator[Group]:
    """A block in which this process is one of a group. They listen on this machine's loopback
    alone, unless GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name another interface.

    Args:
        place: `meeting_place` of the group's first process. device: this process's own.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if (loopback := next((name for name in LOOPBACK if name in _interfaces()), None)) is not None:
        for library in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", loopback)
    dist.init_process_group(
        "gloo", init_method=f"file://{place}", rank=rank, world_size=size, timeout=PATIENCE
    )
    try:
        world = dist.group.WORLD
        tensors = dist.new_group(backend="nccl") if device.type == "cuda" else world
        yield Group(rank, size, tensors, world)
    finally:
        dist.destroy_process_group()


def _interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    for _, alike in groupby(tensors, key=lambda tensor: tensor.dtype):
        bucket: list[Tensor] = []
        for tensor in alike:
            if bucket and sum(map(Tensor.numel, bucket)) + tensor.numel() > BUCKET:
                yield bucket
                bucket = []
            bucket.append(tensor)
        yield bucket


def _unpack(flat: Tensor, bucket: Sequence[Tensor]) -> None:
    sizes = [tensor.numel() for tensor in bucket]
    for tensor, part in zip(bucket, torch.split(flat, sizes), strict=True):
        tensor.copy_(part.view(tensor.shape))
