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
        mean, std: of each channel x in [0, 1], which becomes (x − mean)/std.
        generator: a CPU generator.
    """
    sizes, short_side = (images.heights[index], images.widths[index]), None
    # always draw all random numbers, so that each configuration uses the same number of draws
    draws = torch.rand(len(index), ATTEMPTS, 2, generator=generator)
    draws_once = torch.rand(len(index), 4, generator=generator)
    position, flip_draw, grey_draw = draws_once[:, :2], draws_once[:, 2], draws_once[:, 3]
    mirrored = flip_draw < config.flip
    # choose a box in each image, after the image is resized to `short_side` if that is set
    if config.resize is not None:  # RandomCrop
        short_side = config.resize
        side = torch.full_like(index, size)
        boxes = place_boxes(*compute_resized_sizes(*sizes, short_side), side, side, position)
    elif config.crop_scale == (1.0, 1.0) or config.pad is not None:  # the evaluation crop
        short_side = images.resize
        boxes = _compute_eval_boxes(images, index, size)
    else:  # RandomResizedCrop
        boxes = draw_random_boxes(*sizes, config, draws, position)
    crops = Crops(images, index, boxes, size, mirrored, device)
    pixels = cut_boxes(crops, config.interpolation, short_side)
    if config.pad is not None:  # RandomCrop with padding
        pixels = _cut_padded_crops(pixels, config.pad, position, mirrored)
    if images.channels == 3 and config.grey > 0:
        luma = torch.einsum("bchw,c->bhw", pixels.float(), torch.tensor(LUMA, device=pixels.device))
        greyed = (grey_draw < config.grey).to(pixels.device)
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

    A crop is a square of side `Images.frame` · short side, resized to S = `size`. If
    `Images.resize` is set, each short side is first resized to it, and crops have S × S pixels.
    """
    boxes = _compute_eval_boxes(images, index, size)
    unflipped = torch.zeros(len(index), dtype=torch.bool)
    crops = Crops(images, index, boxes, size, unflipped, device)
    return normalize_pixels(cut_boxes(crops, None, images.resize), mean, std)


def _compute_eval_boxes(images: Images, index: Tensor, size: int) -> Tensor:
    """Return the evaluation crops as boxes [B, 4], in images resized to `Images.resize` if set."""
    sizes = images.heights[index], images.widths[index]
    if images.resize is None:
        return compute_center_boxes(*sizes, images.frame)
    resized = compute_resized_sizes(*sizes, images.resize)
    return compute_center_boxes(*resized, size / images.resize)  # squares of side `size`


def compute_center_boxes(heights: Tensor, widths: Tensor, frame: float) -> Tensor:
    """Return centred squares of side frame · short side: [B, 4] (top, left, height, width)."""
    side = torch.round(torch.minimum(heights, widths) * frame).long().clamp(min=1)
    top = torch.round((heights - side) / 2).long()
    left = torch.round((widths - side) / 2).long()
    return torch.stack([top, left, side, side], 1)


def place_boxes(
    heights: Tensor, widths: Tensor, height: Tensor, width: Tensor, position: Tensor
) -> Tensor:
    """Place a box of size `height` × `width` in each image of size `heights` × `widths`, all [B].

    position: [B, 2] uniform draws in [0, 1), which decide top and left. Returns: boxes [B, 4] int64
    (top, left, height, width).
    """
    top = (position[:, 0].double() * (heights - height + 1)).long()
    left = (position[:, 1].double() * (widths - width + 1)).long()
    return torch.stack([top, left, height, width], 1)


def _cut_padded_crops(pixels: Tensor, pad: int, position: Tensor, mirrored: Tensor) -> Tensor:
    """Return torchvision's RandomCrop(S, padding=pad) of pixels [B, C, S, S], padded with black.

    The images that `mirrored` [B] marks are mirrored already. The position of their crops is
    mirrored too, so that the result is the same as if images were mirrored after cropping.
    """
    side = torch.full_like(mirrored, pixels.shape[-1], dtype=torch.int64)
    boxes = place_boxes(side + 2 * pad, side + 2 * pad, side, side, position)
    top, left = boxes[:, 0], torch.where(mirrored, 2 * pad - boxes[:, 1], boxes[:, 1])
    offsets = torch.arange(pixels.shape[-1])
    rows, columns = ((start[:, None] + offsets).to(pixels.device) for start in (top, left))
    padded = F.pad(pixels, (pad,) * 4).permute(0, 2, 3, 1)
    image_index = torch.arange(len(pixels), device=pixels.device)[:, None, None]
    return padded[image_index, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def draw_random_boxes(
    heights: Tensor, widths: Tensor, config: "AugmentConfig", draws: Tensor, position: Tensor
) -> Tensor:
    """Return RandomResizedCrop's boxes: [B, 4] int64 (top, left, height, width).

    Box area / image area is uniform in `crop_scale`; log(width / height) of the box is uniform
    between the logarithms of `crop_ratio`. The first attempt that fits into the image is taken. If
    none fits, the largest centred box is taken whose width / height is within `crop_ratio`.

    Args:
        draws: [B, attempts, 2] uniform draws in [0, 1), for area and width / height.
        position: [B, 2] uniform draws in [0, 1), for top and left.
    """
    low_share, high_share = config.crop_scale
    area = (heights * widths)[:, None] * (low_share + (high_share - low_share) * draws[..., 0])
    logs = torch.log(torch.tensor(config.crop_ratio, dtype=torch.float64))
    aspect = torch.exp(logs[0] + (logs[1] - logs[0]) * draws[..., 1])
    width = torch.round(torch.sqrt(area * aspect)).long()
    height = torch.round(torch.sqrt(area / aspect)).long()
    fits = (width > 0) & (width <= widths[:, None]) & (height > 0) & (height <= heights[:, None])
    first_fit = fits.to(torch.uint8).argmax(1, keepdim=True)  # number of the attempt
    width, height = width.gather(1, first_fit)[:, 0], height.gather(1, first_fit)[:, 0]
    drawn = place_boxes(heights, widths, height, width, position)
    # compute the largest centred box, which replaces the drawn one if no attempt fits
    low_ratio, high_ratio = config.crop_ratio
    ratio = widths / heights
    width = torch.where(ratio > high_ratio, torch.round(heights * high_ratio).long(), widths)
    height = torch.where(ratio < low_ratio, torch.round(widths / low_ratio).long(), heights)
    width, height = torch.minimum(width, widths), torch.minimum(height, heights)
    top, left = (heights - height) // 2, (widths - width) // 2
    centred = torch.stack([top, left, height, width], 1)
    return torch.where(fits.any(1, keepdim=True), drawn, centred)


def normalize_pixels(
    pixels: Tensor, mean: tuple[float, float, float], std: tuple[float, float, float]
) -> Tensor:
    """Return (pixels/255 − mean)/std in float32 of pixels [B, C, H, W]; 1 channel becomes 3."""
    scale = torch.tensor([1 / (255 * s) for s in std], device=pixels.device)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=pixels.device)
    channels_last = pixels.permute(0, 2, 3, 1)
    if pixels.shape[1] == 3 and channels_last.is_contiguous():
        # scale rows of 3 · width numbers, because loops over three channels take ten times as long
        batch, height, width, _ = channels_last.shape
        rows = channels_last.view(batch, height, 3 * width) * scale.repeat(width)
        return rows.add_(shift.repeat(width)).view(channels_last.shape).permute(0, 3, 1, 2)
    return pixels * scale[:, None, None] + shift[:, None, None]  # broadcasts 1 channel to 3
