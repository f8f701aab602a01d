"""Cropping, flipping, greying and normalising whole batches on the device.

Shape legend: B batch · S side of the output · C channels · 4 corners of a pixel's square.

Boxes, flips and greys are drawn on the CPU from the given generator, the same number of draws
for every image, so a trial sees the same crops on any device.

Deviations from torchvision, on purpose:
- bilinear without antialiasing, of pixels that stay floats (torchvision's `antialias=False`, equal
  to it to rounding), unless an interpolation is given (`resizing.py`);
- the box is sampled by the same rule as RandomResizedCrop, but the ten attempts are drawn for
  all images at once, so the sequence of draws differs;
- `crop_scale: [1, 1]` means the evaluation crop, not the whole image squeezed to a square.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.data.images import Images
from trainables.data.resizing import Crops, compute_resized_sizes, cut_boxes

if TYPE_CHECKING:
    from trainables.config.images import AugmentConfig

ATTEMPTS = 10  # RandomResizedCrop's
LUMA = (0.2989, 0.587, 0.114)  # torchvision's rounding of ITU-R 601-2


def train_images(
    images: Images,
    index: Tensor,
    *,
    config: "AugmentConfig",
    size: int,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
    generator: torch.Generator,
    device: torch.device | str,
) -> Tensor:
    """Return the images `index` [B], augmented and normalised: [B, 3, S, S] float32 on `device`.

    Args:
        mean, std: of pixels in [0, 1], per channel, as the backbone wants them.
        generator: a CPU generator.
    """
    # draw the same random numbers whatever is configured
    sizes, short = (images.heights[index], images.widths[index]), None
    draws = torch.rand(len(index), ATTEMPTS, 2, generator=generator)
    draws_once = torch.rand(len(index), 4, generator=generator)
    position, flip, grey = draws_once[:, :2], draws_once[:, 2], draws_once[:, 3]
    mirrored = flip < config.flip
    # choose the boxes to cut out, in images resized to a short side of `short` if it is set
    if config.resize is not None:  # RandomCrop
        short = config.resize
        side = torch.full_like(index, size)
        boxes = place_boxes(*compute_resized_sizes(*sizes, short), side, side, position)
    elif config.crop_scale == (1.0, 1.0) or config.pad is not None:  # the evaluation crop
        short = images.resize
        boxes = _compute_eval_boxes(images, index, size)
    else:  # RandomResizedCrop
        boxes = draw_random_boxes(*sizes, config, draws, position)
    crops = Crops(images, index, boxes, size, mirrored, device)
    pixels = cut_boxes(crops, config.interpolation, short)
    if config.pad is not None:  # RandomCrop with padding
        pixels = _shift_and_mirror(pixels, config.pad, position, mirrored)
    if images.channels == 3 and config.grey > 0:
        luma = torch.einsum("bchw,c->bhw", pixels.float(), torch.tensor(LUMA, device=pixels.device))
        greyed = (grey < config.grey).to(pixels.device)
        pixels = torch.where(greyed[:, None, None, None], luma[:, None], pixels)
    return normalize_pixels(pixels, mean, std)


def cut_eval_images(
    images: Images,
    index: Tensor,
    *,
    size: int,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
    device: torch.device | str,
) -> Tensor:
    """Return the centre crops of the images `index`, normalised: [B, 3, S, S] float32.

    A crop is a square of the share `Images.frame` of the short side, resized to S = `size`. Where
    `Images.resize` is set, images are resized to that short side first, and S pixels cut out.
    """
    boxes = _compute_eval_boxes(images, index, size)
    unflipped = torch.zeros(len(index), dtype=torch.bool)
    crops = Crops(images, index, boxes, size, unflipped, device)
    return normalize_pixels(cut_boxes(crops, None, images.resize), mean, std)


def _compute_eval_boxes(images: Images, index: Tensor, size: int) -> Tensor:
    """Return [B, 4] boxes of the evaluation crop, in images resized to `Images.resize` if set."""
    sizes = images.heights[index], images.widths[index]
    if images.resize is None:
        return compute_center_boxes(*sizes, images.frame)
    resized = compute_resized_sizes(*sizes, images.resize)
    return compute_center_boxes(*resized, size / images.resize)


def compute_center_boxes(heights: Tensor, widths: Tensor, frame: float) -> Tensor:
    """Return [B, 4] int64 (top, left, height, width): the centred square of frame · short side."""
    side = torch.round(torch.minimum(heights, widths) * frame).long().clamp(min=1)
    top = torch.round((heights - side) / 2).long()
    left = torch.round((widths - side) / 2).long()
    return torch.stack([top, left, side, side], 1)


def place_boxes(
    heights: Tensor, widths: Tensor, height: Tensor, width: Tensor, position: Tensor
) -> Tensor:
    """Place a box of `height` × `width` in each image of `heights` × `widths`, at random.

    position: [B, 2] uniform in [0, 1), for top and left. Returns: [B, 4] int64 (top, left, height,
    width).
    """
    top = (position[:, 0].double() * (heights - height + 1)).long()
    left = (position[:, 1].double() * (widths - width + 1)).long()
    return torch.stack([top, left, height, width], 1)


def _shift_and_mirror(pixels: Tensor, pad: int, position: Tensor, mirrored: Tensor) -> Tensor:
    """Return RandomCrop(S, padding=pad) of pixels[B, C, S, S], padded with black.

    `pixels` of mirrored images are mirrored before, so their crop's position is mirrored, too:
    the result is as if the crop came first.
    """
    side = torch.full_like(mirrored, pixels.shape[-1], dtype=torch.int64)
    boxes = place_boxes(side + 2 * pad, side + 2 * pad, side, side, position)
    top, left = boxes[:, 0], torch.where(mirrored, 2 * pad - boxes[:, 1], boxes[:, 1])
    line = torch.arange(pixels.shape[-1])
    rows, columns = ((start[:, None] + line).to(pixels.device) for start in (top, left))
    padded = F.pad(pixels, (pad,) * 4).permute(0, 2, 3, 1)
    image = torch.arange(len(pixels), device=pixels.device)[:, None, None]
    return padded[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def draw_random_boxes(
    heights: Tensor, widths: Tensor, config: "AugmentConfig", draws: Tensor, position: Tensor
) -> Tensor:
    """Return RandomResizedCrop's boxes: [B, 4] int64 (top, left, height, width).

    Area share uniform in `crop_scale`, log aspect (width/height) uniform in `crop_ratio`; the
    first of the attempts that fits is taken, else the largest centred box within the ratios.

    Args:
        draws: [B, attempts, 2] uniform in [0, 1), for area and aspect.
        position: [B, 2] uniform in [0, 1), for top and left.
    """
    low, high = config.crop_scale
    area = (heights * widths)[:, None] * (low + (high - low) * draws[..., 0])
    logs = torch.log(torch.tensor(config.crop_ratio, dtype=torch.float64))
    aspect = torch.exp(logs[0] + (logs[1] - logs[0]) * draws[..., 1])
    width = torch.round(torch.sqrt(area * aspect)).long()
    height = torch.round(torch.sqrt(area / aspect)).long()
    fits = (width > 0) & (width <= widths[:, None]) & (height > 0) & (height <= heights[:, None])
    first = fits.to(torch.uint8).argmax(1, keepdim=True)  # attempt that fits
    width, height = width.gather(1, first)[:, 0], height.gather(1, first)[:, 0]
    drawn = place_boxes(heights, widths, height, width, position)
    # the largest centred box, where none of the attempts fits
    low, high = config.crop_ratio
    ratio = widths / heights
    width = torch.where(ratio > high, torch.round(heights * high).long(), widths)
    height = torch.where(ratio < low, torch.round(widths / low).long(), heights)
    width, height = torch.minimum(width, widths), torch.minimum(height, heights)
    top, left = (heights - height) // 2, (widths - width) // 2
    centred = torch.stack([top, left, height, width], 1)
    return torch.where(fits.any(1, keepdim=True), drawn, centred)


def normalize_pixels(
    pixels: Tensor, mean: tuple[float, float, float], std: tuple[float, float, float]
) -> Tensor:
    """Return (x/255 − mean)/std, float32, of pixels of any type; one channel becomes three."""
    scale = torch.tensor([1 / (255 * s) for s in std], device=pixels.device)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=pixels.device)
    lines = pixels.permute(0, 2, 3, 1)
    if pixels.shape[1] == 3 and lines.is_contiguous():
        # Each line of an image is one long row, because loops over three channels take ten times as
        # long.
        batch, height, width, _ = lines.shape
        rows = lines.view(batch, height, 3 * width) * scale.repeat(width)
        return rows.add_(shift.repeat(width)).view(lines.shape).permute(0, 3, 1, 2)
    return pixels * scale[:, None, None] + shift[:, None, None]
