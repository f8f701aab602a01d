"""Boxes of images resized with antialiasing, and boxes of resized images, as torchvision does it.

Shape legend: B batch · S side of the output · C channels.

One image after the other, by `torch.nn.functional.interpolate(antialias=True)`: how many pixels of
an image make one of the output differs from box to box, and a shared layout for all of them would
take the room of the widest. Kernels are those of Pillow too (bicubic: a = −1/2).

Deviation from torchvision's pipeline on Pillow images: pixels stay floats, they are not rounded.
Bicubic values beyond the range of a pixel are cut off, as those of 8 bits are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from trainables.data.images import Images
from trainables.machine.threads import side_by_side

if TYPE_CHECKING:
    from trainables.config.images import Interpolation

T = TypeVar("T")


def resampled(
    images: Images,
    index: Tensor,
    boxes: Tensor,
    *,
    size: int,
    flip: Tensor,
    device: torch.device | str,
    interpolation: Interpolation,
) -> Tensor:
    """Boxes resized to S × S: [B, C, S, S] float32 in 0 … 255, in channels-last memory.

    Args:
        index: [B] rows. boxes: [B, 4] int64 (top, left, height, width). flip: [B] bool. All on
            the CPU.
    """

    def one(task: tuple[Tensor, list[int]]) -> Tensor:
        whole, (top, left, height, width) = task
        cut = whole[top : top + height, left : left + width]
        return _resized(cut, size, size, interpolation)

    tasks = zip(_each(images, index, device), boxes.tolist(), strict=True)
    return _batch(_all(one, tasks, device), flip)


def of_resized(
    images: Images,
    index: Tensor,
    boxes: Tensor,
    *,
    short: int,
    flip: Tensor,
    device: torch.device | str,
    interpolation: Interpolation,
) -> Tensor:
    """Boxes of images whose short side is resized to `short`, taken as they lie: [B, C, S, S]
    float32 in 0 … 255, in channels-last memory.

    Args:
        boxes: [B, 4] int64 (top, left, S, S), in images of the sizes that `resized_sizes` gives.
        index, flip: as in `resampled`.
    """
    heights, widths = resized_sizes(images.heights[index], images.widths[index], short)

    def one(task: tuple[Tensor, list[int], int, int]) -> Tensor:
        whole, (top, left, side, _), height, width = task
        resized = _resized(whole, height, width, interpolation)
        return resized[top : top + side, left : left + side]

    tasks = zip(
        _each(images, index, device),
        boxes.tolist(),
        heights.tolist(),
        widths.tolist(),
        strict=True,
    )
    return _batch(_all(one, tasks, device), flip)


def resized_sizes(heights: Tensor, widths: Tensor, short: int) -> tuple[Tensor, Tensor]:
    """Heights and widths, [B] int64 each, with a short side of `short`; the long one is rounded
    down, as torchvision does it."""
    least = torch.minimum(heights, widths)
    return short * heights // least, short * widths // least


def _each(images: Images, index: Tensor, device: torch.device | str) -> Iterator[Tensor]:
    """The images one by one, [H, W, C] uint8 on the device."""
    flat, starts = images.batch(index, device)
    heights, widths = images.heights[index].tolist(), images.widths[index].tolist()
    for start, height, width in zip(starts.tolist(), heights, widths, strict=True):
        end = start + height * width * images.channels
        yield flat[start:end].view(height, width, images.channels)


def _all(
    work: Callable[[T], Tensor], tasks: Iterable[T], device: torch.device | str
) -> list[Tensor]:
    """On the CPU several images at once; a GPU takes one after the other, and waits for none."""
    if torch.device(device).type == "cpu":
        return side_by_side(work, tasks)
    return [work(task) for task in tasks]


def _resized(pixels: Tensor, height: int, width: int, interpolation: Interpolation) -> Tensor:
    """[H, W, C] uint8 → [height, width, C] float32; as it is where it has that size."""
    if pixels.shape[:2] == (height, width):
        return pixels.float()
    image = pixels.permute(2, 0, 1)[None].float()
    resized = F.interpolate(
        image, (height, width), mode=interpolation, align_corners=False, antialias=True
    )
    return resized[0].permute(1, 2, 0).clamp_(0, 255)


def _batch(rows: list[Tensor], flip: Tensor) -> Tensor:
    """[S, S, C] each → [B, C, S, S], some of them mirrored."""
    mirrored = [
        row.flip(1) if flips else row for row, flips in zip(rows, flip.tolist(), strict=True)
    ]
    return torch.stack(mirrored).permute(0, 3, 1, 2)
