"""Squares cut out of images and brought to the size that a network takes: antialiased, or not.

Without antialiasing: bilinear, by the four neighbours of each sampling point, whose coordinate is
(i + ½)·length/S − ½, clamped to the box, as in `torch.nn.functional.interpolate(
align_corners=False)` of the cropped image; along the row first, then along the column. On the CPU
one image after the other: what it needs stays in the cache, and each of its rows is resized once; a
batch at once needs indices of eight bytes for every pixel, and takes four times as long at 224. A
GPU takes the batch at once. Both do the same arithmetic, to the same bits.

With antialiasing, as torchvision does it: one image after the other, by
`torch.nn.functional.interpolate(antialias=True)`: how many pixels of an image make one of the
output differs from box to box, and a shared layout for all of them would take the room of the
widest. Kernels are those of Pillow too (bicubic: a = −1/2). Pixels are rounded to 8 bits and cut
off at 0 and 255, as everybody's are whose pictures are resized by Pillow or torchvision. On a CPU
torch computes with weights of 16 bits, three times as fast as with floats: a pixel is at most one
step beside the float one's nearest. Other devices have no such kernel: floats, rounded.

Shape legend: B batch · S side of the output · C channels · H, W rows and columns of an image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from trainables.data.images import Images
from trainables.machine.threads import map_in_threads

if TYPE_CHECKING:
    from trainables.config.images import Interpolation

REVISION = 2  # raise by hand when pixels resized with antialiasing change
ANTIALIASED_TOGETHER = 4  # images that a thread takes as one task
BILINEAR_TOGETHER = 8


@dataclass(frozen=True)
class Crops:
    """Which squares are cut out of which images.

    index: [B] rows of `images`. boxes: [B, 4] int64 (top, left, height, width). flip: [B] bool,
    those that are mirrored. All on the CPU. size: S. device: where the squares are made.
    """

    images: Images
    index: Tensor
    boxes: Tensor
    size: int
    flip: Tensor
    device: torch.device | str = "cpu"


def resample_boxes(crops: Crops, interpolation: Interpolation, short: int | None = None) -> Tensor:
    """Resize boxes to S × S, antialiased: [B, C, S, S] uint8, in channels-last memory. On the CPU
    several images at once; a GPU takes one after the other, and waits for none.

    Args:
        short: side to which images are resized first; boxes (top, left, S, S) are then in images of
            the sizes that `compute_resized_sizes` gives, and are taken as they lie.
    """
    images, index, size = crops.images, crops.index, crops.size
    shape = len(index), size, size, images.channels
    batch = torch.empty(shape, dtype=torch.uint8, device=crops.device)

    def write(task: tuple[Tensor, list[int], list[int], bool]) -> None:
        row, place, (top, left, height, width), mirrored = task
        whole = _view_image(flat, place, images.channels)
        if short is not None:
            lengths = whole.shape[:2]
            tall, wide = (short * length // min(lengths) for length in lengths)
            whole = _resize_image(whole, tall, wide, interpolation)
        part = whole[top : top + height, left : left + width]
        part = _resize_image(part, size, size, interpolation)
        row.copy_(part.flip(1) if mirrored else part)

    flat, starts = images.load_batch(index, crops.device)
    places = torch.stack([starts, images.heights[index], images.widths[index]], 1).tolist()
    tasks = zip(batch.unbind(), places, crops.boxes.tolist(), crops.flip.tolist(), strict=True)
    if batch.device.type == "cpu":
        map_in_threads(write, tasks, together=ANTIALIASED_TOGETHER)
    else:
        for task in tasks:
            write(task)
    return batch.permute(0, 3, 1, 2)


def compute_resized_sizes(heights: Tensor, widths: Tensor, short: int) -> tuple[Tensor, Tensor]:
    """Return heights and widths, [B] int64 each, with a short side of `short`; the long one is
    rounded down, as torchvision does it."""
    least = torch.minimum(heights, widths)
    return short * heights // least, short * widths // least


def _view_image(flat: Tensor, place: list[int], channels: int) -> Tensor:
    """View an image in packed bytes as [H, W, C]; `place` is its start, height and width."""
    start, height, width = place
    return flat[start : start + height * width * channels].view(height, width, channels)


def _resize_image(pixels: Tensor, height: int, width: int, interpolation: Interpolation) -> Tensor:
    """Bring [H, W, C] uint8 to [height, width, C] uint8; as it is where it has that size."""
    if pixels.shape[:2] == (height, width):
        return pixels
    # By these strides torch sees that channels lie last, and neither takes them apart nor leaves
    # them so: with the copy that follows half of the time.
    image = pixels[None].permute(0, 3, 1, 2)
    on_cpu = image.device.type == "cpu"
    resized = F.interpolate(
        image if on_cpu else image.float(),
        (height, width),
        mode=interpolation,
        align_corners=False,
        antialias=True,
    )
    if not on_cpu:
        resized = resized.round_().clamp_(0, 255).to(torch.uint8)
    return resized[0].permute(1, 2, 0)


def sample_bilinear(crops: Crops) -> Tensor:
    """Resize boxes to S × S, bilinear without antialiasing: [B, C, S, S] float32 in 0 … 255, in
    channels-last memory."""
    on_cpu = torch.device(crops.device).type == "cpu"
    return sample_one_by_one(crops) if on_cpu else sample_at_once(crops)


def sample_one_by_one(crops: Crops) -> Tensor:
    """Do `sample` on the CPU, in as many threads as torch has."""
    images, index, boxes, size = crops.images, crops.index, crops.boxes, crops.size
    flat, starts = images.load_batch(index, "cpu")
    begin = torch.zeros(len(index), dtype=torch.int64)
    low_y, high_y, share_y = _compute_axis_weights(begin, boxes[:, 2], size)
    low_x, high_x, share_x = _mirror_lines(
        _compute_axis_weights(begin, boxes[:, 3], size), crops.flip
    )
    # Channels are columns of their own: with inner loops of three steps it takes twice as long.
    channels = images.channels
    low_x, high_x = (
        (at[:, :, None] * channels + torch.arange(channels)).flatten(1) for at in (low_x, high_x)
    )
    share_x = share_x.repeat_interleave(channels, 1)
    places = torch.stack([starts, images.heights[index], images.widths[index]], 1).tolist()
    out = torch.empty(len(index), size, size * channels)

    def sample_image(task: tuple[list[int], list[int], tuple[Tensor, ...]]) -> None:
        place, (top, left, high, wide), axes = task
        row, low_y, high_y, share_y, low_x, high_x, share_x = axes
        whole = _view_image(flat, place, channels)
        cut = whole[top : top + high, left : left + wide].float().flatten(1)
        lines = cut.index_select(1, low_x).lerp_(cut.index_select(1, high_x), share_x)
        upper, lower = lines.index_select(0, low_y), lines.index_select(0, high_y)
        torch.lerp(upper, lower, share_y[:, None], out=row)

    axes = zip(out, low_y, high_y, share_y, low_x, high_x, share_x, strict=True)
    tasks = zip(places, boxes.tolist(), axes, strict=True)
    map_in_threads(sample_image, tasks, together=BILINEAR_TOGETHER)
    return out.view(len(index), size, size, channels).permute(0, 3, 1, 2)


def sample_at_once(crops: Crops) -> Tensor:
    """Do `sample` of the whole batch."""
    images, index, boxes, size = crops.images, crops.index, crops.boxes, crops.size
    flat, starts = images.load_batch(index, crops.device)
    pixels = flat.view(-1, images.channels)
    moved = torch.cat(
        [
            boxes,
            (starts // images.channels)[:, None],
            images.widths[index][:, None],
            crops.flip.long()[:, None],
        ],
        1,
    ).to(crops.device)
    top, left, height, width, start, stride, mirrored = moved.unbind(1)
    low_y, high_y, share_y = _compute_axis_weights(top, height, size)
    low_x, high_x, share_x = _mirror_lines(
        _compute_axis_weights(left, width, size), mirrored.bool()
    )
    low_y, high_y = (start[:, None] + line * stride[:, None] for line in (low_y, high_y))

    def row(y: Tensor) -> Tensor:
        left_pixel = pixels[y[:, :, None] + low_x[:, None, :]].float()
        right_pixel = pixels[y[:, :, None] + high_x[:, None, :]].float()
        return left_pixel.lerp_(right_pixel, share_x[:, None, :, None])

    return row(low_y).lerp_(row(high_y), share_y[:, :, None, None]).permute(0, 3, 1, 2)


def _compute_axis_weights(
    begin: Tensor, length: Tensor, size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return lower and upper neighbour and the upper's share along one axis: [B, S] each."""
    steps = torch.arange(size, device=begin.device, dtype=torch.float32) + 0.5
    at = steps[None] * (length[:, None] / size) - 0.5
    at = torch.minimum(at.clamp(min=0), (length[:, None] - 1).float())
    low = at.floor()
    high = torch.minimum(low + 1, (length[:, None] - 1).float())
    share = at - low
    return begin[:, None] + low.long(), begin[:, None] + high.long(), share


def _mirror_lines(lines: tuple[Tensor, ...], flip: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.where(flip[:, None], line.flip(1), line) for line in lines)
