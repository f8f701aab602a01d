"""Boxes of images resized with antialiasing, and boxes of resized images, as torchvision does it.

Shape legend: B batch · S side of the output · C channels.

One image after the other, by `torch.nn.functional.interpolate(antialias=True)`: how many pixels of
an image make one of the output differs from box to box, and a shared layout for all of them would
take the room of the widest. Kernels are those of Pillow too (bicubic: a = −1/2).

Pixels are rounded to 8 bits and cut off at 0 and 255, as everybody's are whose pictures are resized
by Pillow or torchvision. On a CPU torch computes with weights of 16 bits, three times as fast as
with floats: a pixel is at most one step beside the float one's nearest. Other devices have no such
kernel: floats, rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from trainables.data.images import Images
from trainables.machine.threads import side_by_side

if TYPE_CHECKING:
    from trainables.config.images import Interpolation

REVISION = 2  # raise by hand when resized pixels change
TOGETHER = 4  # images that a thread takes as one task


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
    """Boxes resized to S × S: [B, C, S, S] uint8, in channels-last memory.

    Args:
        index: [B] rows. boxes: [B, 4] int64 (top, left, height, width). flip: [B] bool. All on
            the CPU.
    """

    def one(whole: Tensor, box: list[int]) -> Tensor:
        top, left, height, width = box
        cut = whole[top : top + height, left : left + width]
        return _resized(cut, size, size, interpolation)

    return _batch(one, images, index, boxes, size=size, flip=flip, device=device)


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
    uint8, in channels-last memory.

    Args:
        boxes: [B, 4] int64 (top, left, S, S), in images of the sizes that `resized_sizes` gives.
        index, flip: as in `resampled`.
    """

    def one(whole: Tensor, box: list[int]) -> Tensor:
        top, left, side, _ = box
        least = min(whole.shape[:2])
        height, width = (short * length // least for length in whole.shape[:2])
        return _resized(whole, height, width, interpolation)[top : top + side, left : left + side]

    size = int(boxes[0, 2]) if len(boxes) else short
    return _batch(one, images, index, boxes, size=size, flip=flip, device=device)


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


def _batch(
    crop: Callable[[Tensor, list[int]], Tensor],
    images: Images,
    index: Tensor,
    boxes: Tensor,
    *,
    size: int,
    flip: Tensor,
    device: torch.device | str,
) -> Tensor:
    """Each image's crop, some of them mirrored: [B, C, S, S] uint8. On the CPU several images at
    once; a GPU takes one after the other, and waits for none."""
    shape = len(index), size, size, images.channels
    batch = torch.empty(shape, dtype=torch.uint8, device=device)

    def write(task: tuple[Tensor, Tensor, list[int], bool]) -> None:
        row, whole, box, mirrored = task
        cut = crop(whole, box)
        row.copy_(cut.flip(1) if mirrored else cut)

    rows, wholes = batch.unbind(), _each(images, index, device)
    tasks = zip(rows, wholes, boxes.tolist(), flip.tolist(), strict=True)
    if batch.device.type == "cpu":
        side_by_side(write, tasks, together=TOGETHER)
    else:
        for task in tasks:
            write(task)
    return batch.permute(0, 3, 1, 2)


def _resized(pixels: Tensor, height: int, width: int, interpolation: Interpolation) -> Tensor:
    """[H, W, C] uint8 → [height, width, C] uint8; as it is where it has that size."""
    if pixels.shape[:2] == (height, width):
        return pixels
    # By these strides torch sees that channels lie last, and neither takes them apart nor leaves
    # them so: with the copy that follows half of the time.
    image = pixels[None].permute(0, 3, 1, 2)
    if image.device.type == "cpu":
        resized = _interpolated(image, height, width, interpolation)
    else:
        exact = _interpolated(image.float(), height, width, interpolation)
        resized = exact.round_().clamp_(0, 255).to(torch.uint8)
    return resized[0].permute(1, 2, 0)


def _interpolated(image: Tensor, height: int, width: int, interpolation: Interpolation) -> Tensor:
    return F.interpolate(
        image, (height, width), mode=interpolation, align_corners=False, antialias=True
    )
