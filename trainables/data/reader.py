"""Batches of images that are read before they are asked for.

Where pixels lie on the device, or are mapped and used on the CPU, there is nothing to do. Otherwise
threads decode or copy the next batches, while the network trains on this one, into memory that for
a GPU is pinned. In another order than was expected, batches are the same and come later.

Shape legend: B batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainables.data.images import Images

DEPTH = 2  # batches ahead, besides the one in use: bounds memory


@dataclass
class Batch:
    """rows: [B]. packed: room for their pixels, which start at `starts`."""

    rows: Tensor
    starts: Tensor
    packed: Tensor
    tasks: list[Future[None]]


@dataclass
class Reader:
    """Reads `images` for one trial, in as many threads as torch has."""

    images: Images
    device: torch.device
    coming: deque[Tensor] = field(default_factory=deque)
    begun: deque[Batch] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def prefetch(self, batches: Iterable[Tensor]) -> None:
        """Read these rows, [B] each, ahead in this order, and nothing that was expected before."""
        self._drop_expected()
        if not self.images.is_resident(self.device):
            self.coming.extend(batches)
            self._fill_queue()

    def load_rows(self, rows: Tensor) -> tuple[Images, Tensor]:
        """Return images on the device among which are those of `rows` ([B]), and where: [B].

        Raises:
            ConfigError: a file that cannot be decoded.
        """
        if self.images.is_resident(self.device):
            return self.images, rows
        if self.begun and torch.equal(self.begun[0].rows, rows):
            batch = self.begun.popleft()
        else:
            self._drop_expected()
            batch = self._begin_read(rows)
        self._fill_queue()
        for task in batch.tasks:
            task.result()
        # torch keeps pinned memory until its copy has arrived
        flat = batch.packed.to(self.device, non_blocking=True)
        return self.images.select_packed(rows, flat, batch.starts), torch.arange(len(rows))

    def _drop_expected(self) -> None:
        for batch in self.begun:
            for task in batch.tasks:
                task.cancel()
        self.begun.clear()
        self.coming.clear()

    def _fill_queue(self) -> None:
        while self.coming and len(self.begun) < DEPTH:
            self.begun.append(self._begin_read(self.coming.popleft()))

    def _begin_read(self, rows: Tensor) -> Batch:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(torch.get_num_threads(), "reader")
        starts, total = self.images.compute_layout(rows)
        with torch.inference_mode(False):  # evaluation asks in it, and the threads are not in it
            packed = torch.empty(total, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        blocks = (torch.split(column, self.images.at_once) for column in (rows, starts))
        tasks = [
            self._pool.submit(self.images.pack_rows, numbers.tolist(), offsets.tolist(), packed)
            for numbers, offsets in zip(*blocks, strict=True)
        ]
        return Batch(rows, starts, packed, tasks)
