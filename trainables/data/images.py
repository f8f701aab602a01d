"""Store images of any size as one array of bytes, on disk or on a device.

Shape legend: N images · B of a batch · H, W rows and columns of one image · C channels, 1 or 3.

All pixels are in one flat uint8 array. On the CPU it is a memory-mapped file, which all trials of a
machine share; a device with enough memory holds the whole array.
"""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

MOST_MEMORY = 0.3  # of a device's free memory, which resident pixels may take
DEPTH = 2  # batches read ahead, besides the one in use: bounds memory


@dataclass(frozen=True)
class Images:
    """N uint8 images.

    flat: [total bytes] uint8, image after image, each H·W·C row-major.
    offsets, heights, widths: [N] int64, on the CPU.
    frame: side of the evaluation crop, as a share of the short side (1: the whole square;
        224/256 for photographs, as the papers crop them).
    resize: short side that evaluation resizes to, before it crops; None: images are stored so
        that there is no need.
    """

    flat: Tensor
    offsets: Tensor
    heights: Tensor
    widths: Tensor
    channels: int
    frame: float = 1.0
    resize: int | None = None
    at_once: ClassVar[int] = 16  # images that a thread packs as one task
    is_decoded: ClassVar[bool] = True  # whether `flat` holds pixels

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, row: int) -> Tensor:
        """Return [H, W, C] uint8, a view."""
        start, h, w = int(self.offsets[row]), int(self.heights[row]), int(self.widths[row])
        return self.flat[start : start + h * w * self.channels].view(h, w, self.channels)

    def to(self, device: torch.device) -> "Images":
        """Return the images, on the GPU `device` if they fill at most 30 % of its free memory."""
        if not self.is_decoded or device.type != "cuda" or self.is_resident(device):
            return self
        if self.flat.numel() > MOST_MEMORY * torch.cuda.mem_get_info(device)[0]:
            return self
        return replace(self, flat=self.flat.to(device))

    def is_resident(self, device: torch.device) -> bool:
        """Return whether pixels are used in place on this device."""
        return self.is_decoded and self.flat.device.type == device.type

    def pack_rows(self, rows: list[int], starts: list[int], packed: Tensor) -> None:
        """Copy each of the images `rows` to its start in the array `packed` on the CPU."""
        for row, start in zip(rows, starts, strict=True):
            pixels = self[row].reshape(-1).numpy()
            # copy with numpy, because torch would divide each copy among its threads
            packed.numpy()[start : start + len(pixels)] = pixels

    @staticmethod
    def from_equal_sizes(pixels: Tensor, frame: float = 1.0) -> "Images":
        """Return N images of one size, from [N, H, W] or [N, H, W, C] uint8."""
        n, h, w = pixels.shape[:3]
        channels = pixels.shape[3] if pixels.dim() == 4 else 1
        offsets = torch.arange(n) * (h * w * channels)
        heights, widths = torch.full((n,), h), torch.full((n,), w)
        return Images(pixels.reshape(-1), offsets, heights, widths, channels, frame)


def map_array(path: Path) -> Tensor:
    """Map the array of an .npy file, or the bytes of another file, copy-on-write."""
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))
    return torch.from_numpy(np.memmap(path, np.uint8, mode="c"))


@dataclass
class PendingBatch:
    """Pixels of a batch. rows: [B]. packed: memory for the pixels, which begin at `starts`."""

    rows: Tensor
    starts: Tensor
    packed: Tensor
    tasks: list[Future[None]]


class ImageReader:
    """Read images for one trial, in as many threads as torch has.

    Pixels on the device, or mapped and used on the CPU, need no work. Otherwise threads decode or
    copy the next batches while the network trains, for a GPU into pinned memory. If rows come in
    another order than announced, the batches are the same and only arrive later.
    """

    def __init__(self, images: Images, device: torch.device) -> None:
        self.images, self.device = images, device
        self.coming: deque[Tensor] = deque()  # rows of announced batches
        self.begun: deque[PendingBatch] = deque()
        self._pool = ThreadPoolExecutor(torch.get_num_threads(), "reader")

    def prefetch(self, batches: Iterable[Tensor]) -> None:
        """Announce batches of rows [B] and begin to read them; forget batches announced before."""
        self._drop_batches()
        if not self.images.is_resident(self.device):
            self.coming.extend(batches)
            self._begin_batches()

    def load_rows(self, rows: Tensor) -> tuple[Images, Tensor]:
        """Return images on the device that include the images `rows`, and the position of each [B].

        Wait for the batch if it is being read ahead, else read it now; then begin the next batches.
        """
        images = self.images
        if images.is_resident(self.device):
            return images, rows
        if self.begun and torch.equal(self.begun[0].rows, rows):
            batch = self.begun.popleft()
        else:  # other rows than announced
            self._drop_batches()
            batch = self._begin_batch(rows)
        self._begin_batches()
        for task in batch.tasks:
            task.result()
        # `packed` may be freed during the copy: torch keeps pinned memory until the copy has ended
        flat = batch.packed.to(self.device, non_blocking=True)
        sizes = images.heights[rows], images.widths[rows]
        packed = Images(flat, batch.starts, *sizes, images.channels, images.frame, images.resize)
        return packed, torch.arange(len(rows))

    def _drop_batches(self) -> None:
        """Forget all announced batches, and stop reading them."""
        for batch in self.begun:
            for task in batch.tasks:
                task.cancel()
        self.begun.clear()
        self.coming.clear()

    def _begin_batches(self) -> None:
        while self.coming and len(self.begun) < DEPTH:
            self.begun.append(self._begin_batch(self.coming.popleft()))

    def _begin_batch(self, rows: Tensor) -> PendingBatch:
        """Let threads copy the images of these rows into one array; return it with their tasks."""
        images, is_pinned = self.images, self.device.type == "cuda"
        sizes = images.heights[rows] * images.widths[rows] * images.channels
        starts = torch.cumsum(sizes, 0) - sizes
        with torch.inference_mode(False):  # the threads that write are not in that mode
            packed = torch.empty(int(sizes.sum()), dtype=torch.uint8, pin_memory=is_pinned)
        row_blocks, start_blocks = (torch.split(x, images.at_once) for x in (rows, starts))
        tasks = [
            self._pool.submit(images.pack_rows, block.tolist(), block_starts.tolist(), packed)
            for block, block_starts in zip(row_blocks, start_blocks, strict=True)
        ]
        return PendingBatch(rows, starts, packed, tasks)
