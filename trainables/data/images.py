"""Images as one run of bytes, whatever their sizes, on disk or on the device.

Shape legend: N images · B of a batch · H, W rows and columns of one image · C channels, 1 or 3.

All pixels lie one after the other in a flat uint8 array. A memory-mapped file gives it on the CPU,
so that all trials of a machine share its pages; where the device has room it holds the array whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor


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

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, row: int) -> Tensor:
        """Return [H, W, C] uint8, a view."""
        start, h, w = int(self.offsets[row]), int(self.heights[row]), int(self.widths[row])
        return self.flat[start : start + h * w * self.channels].view(h, w, self.channels)

    def to(self, device: torch.device | str, share: float = 0.3) -> Images:
        """Make resident on `device` if all pixels take at most `share` of its free memory."""
        device = torch.device(device)
        if device.type != "cuda" or self.is_resident(device):
            return self
        if self.flat.numel() > share * torch.cuda.mem_get_info(device)[0]:
            return self
        return replace(self, flat=self.flat.to(device))

    def is_resident(self, device: torch.device) -> bool:
        """Return whether pixels are used where they lie."""
        return self.flat.device.type == device.type

    def load_batch(self, index: Tensor, device: torch.device | str) -> tuple[Tensor, Tensor]:
        """Return pixels that contain the images `index`, on `device`, and where each starts: [B].

        Resident pixels are used where they are; otherwise the batch alone is moved.
        """
        device = torch.device(device)
        if self.is_resident(device):
            return self.flat, self.offsets[index]
        starts, total = self.compute_layout(index)
        packed = torch.empty(total, dtype=torch.uint8)
        self.pack_rows(index.tolist(), starts.tolist(), packed)
        return packed.to(device, non_blocking=True), starts

    def compute_layout(self, index: Tensor) -> tuple[Tensor, int]:
        """Return where each of the images `index` starts if they are packed, and all bytes."""
        sizes = self.heights[index] * self.widths[index] * self.channels
        return torch.cumsum(sizes, 0) - sizes, int(sizes.sum())

    def pack_rows(self, rows: list[int], starts: list[int], packed: Tensor) -> None:
        """Write the pixels of some images where they start in `packed`, [bytes] on the CPU."""
        for row, start in zip(rows, starts, strict=True):
            pixels = self[row].reshape(-1).numpy()
            # By numpy: torch would divide each copy among its threads.
            packed.numpy()[start : start + len(pixels)] = pixels

    def select_packed(self, index: Tensor, flat: Tensor, starts: Tensor) -> Images:
        """Return the images `index` alone, in pixels that were packed, by `pack` or elsewhere."""
        sizes = self.heights[index], self.widths[index]
        return Images(flat, starts, *sizes, self.channels, self.frame, self.resize)

    @staticmethod
    def from_equal_sizes(pixels: Tensor, frame: float = 1.0) -> Images:
        """From [N, H, W] or [N, H, W, C] uint8."""
        n, h, w = pixels.shape[:3]
        channels = pixels.shape[3] if pixels.dim() == 4 else 1
        return Images(
            flat=pixels.reshape(-1),
            offsets=torch.arange(n) * (h * w * channels),
            heights=torch.full((n,), h),
            widths=torch.full((n,), w),
            channels=channels,
            frame=frame,
        )


def map_array(path: Path) -> Tensor:
    """Return the array of an .npy file, or another file's bytes, mapped copy-on-write."""
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))
    return torch.from_numpy(np.memmap(path, np.uint8, mode="c"))
