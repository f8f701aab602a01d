"""Boxes of images resized without antialiasing: bilinear, by the neighbours of each point alone.

Shape legend: B batch · S side of the output · C channels · H, W rows and columns of an image.

A sampling point's coordinate is (i + ½)·length/S − ½, clamped to the box, as in
`torch.nn.functional.interpolate(align_corners=False)` of the cropped image. Along the row first,
then along the column.

On the CPU one image after the other: what it needs stays in the cache, and each of its rows is
resized once; a batch at once needs indices of eight bytes for every pixel, and takes four times as
long at 224. A GPU takes the batch at once. Both do the same arithmetic, to the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.data.images import Images
from trainables.machine.threads import side_by_side

TOGETHER = 8  # images that a thread takes as one task


def sampled(
    images: Images,
    index: Tensor,
    boxes: Tensor,
    *,
    size: int,
    flip: Tensor,
    device: torch.device | str,
) -> Tensor:
    """Boxes resized to S × S: [B, C, S, S] float32 in 0 … 255, in channels-last memory.

    Args:
        index: [B] rows. boxes: [B, 4] int64 (top, left, height, width). flip: [B] bool, those
            that are mirrored. All on the CPU.
    """
    device = torch.device(device)
    if device.type == "cpu":
        return one_by_one(images, index, boxes, size=size, flip=flip)
    return at_once(images, index, boxes, size=size, flip=flip, device=device)


def one_by_one(images: Images, index: Tensor, boxes: Tensor, *, size: int, flip: Tensor) -> Tensor:
    """`sampled` on the CPU, in as many threads as torch has."""
    flat, starts = images.batch(index, "cpu")
    begin = torch.zeros(len(index), dtype=torch.int64)
    low_y, high_y, share_y = axis(begin, boxes[:, 2], size)
    low_x, high_x, share_x = _mirrored(axis(begin, boxes[:, 3], size), flip)
    # Channels are columns of their own: with inner loops of three steps it takes twice as long.
    channels = images.channels
    low_x, high_x = (
        (at[:, :, None] * channels + torch.arange(channels)).flatten(1) for at in (low_x, high_x)
    )
    share_x = share_x.repeat_interleave(channels, 1)
    places = torch.stack([starts, images.heights[index], images.widths[index]], 1).tolist()
    out = torch.empty(len(index), size, size * channels)

    def one(task: tuple[list[int], list[int], tuple[Tensor, ...]]) -> None:
        (start, height, width), (top, left, high, wide), axes = task
        row, low_y, high_y, share_y, low_x, high_x, share_x = axes
        whole = flat[start : start + height * width * channels].view(height, width, channels)
        cut = whole[top : top + high, left : left + wide].float().flatten(1)
        lines = cut.index_select(1, low_x).lerp_(cut.index_select(1, high_x), share_x)
        upper, lower = lines.index_select(0, low_y), lines.index_select(0, high_y)
        torch.lerp(upper, lower, share_y[:, None], out=row)

    axes = zip(out, low_y, high_y, share_y, low_x, high_x, share_x, strict=True)
    side_by_side(one, zip(places, boxes.tolist(), axes, strict=True), together=TOGETHER)
    return out.view(len(index), size, size, channels).permute(0, 3, 1, 2)


def at_once(
    images: Images,
    index: Tensor,
    boxes: Tensor,
    *,
    size: int,
    flip: Tensor,
    device: torch.device,
) -> Tensor:
    """`sampled` of the whole batch."""
    flat, starts = images.batch(index, device)
    pixels = flat.view(-1, images.channels)
    moved = torch.cat(
        [
            boxes,
            (starts // images.channels)[:, None],
            images.widths[index][:, None],
            flip.long()[:, None],
        ],
        1,
    ).to(device)
    top, left, height, width, start, stride, mirrored = moved.unbind(1)
    low_y, high_y, share_y = axis(top, height, size)
    low_x, high_x, share_x = _mirrored(axis(left, width, size), mirrored.bool())
    low_y, high_y = (start[:, None] + line * stride[:, None] for line in (low_y, high_y))

    def row(y: Tensor) -> Tensor:
        left_pixel = pixels[y[:, :, None] + low_x[:, None, :]].float()
        right_pixel = pixels[y[:, :, None] + high_x[:, None, :]].float()
        return left_pixel.lerp_(right_pixel, share_x[:, None, :, None])

    return row(low_y).lerp_(row(high_y), share_y[:, :, None, None]).permute(0, 3, 1, 2)


def axis(begin: Tensor, length: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Lower and upper neighbour and the upper's share along one axis: [B, S] each."""
    steps = torch.arange(size, device=begin.device, dtype=torch.float32) + 0.5
    at = steps[None] * (length[:, None] / size) - 0.5
    at = torch.minimum(at.clamp(min=0), (length[:, None] - 1).float())
    low = at.floor()
    high = torch.minimum(low + 1, (length[:, None] - 1).float())
    share = at - low
    return begin[:, None] + low.long(), begin[:, None] + high.long(), share


def _mirrored(lines: tuple[Tensor, ...], flip: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.where(flip[:, None], line.flip(1), line) for line in lines)
