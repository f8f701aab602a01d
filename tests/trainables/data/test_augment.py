"""Crops against torchvision's, for the same boxes and offsets; draws; layouts of the pixels.

torchvision's functions of before 2 resize floats, and round nothing of pictures of 8 bits before
the end; those of version 2 take torch's kernel of 8 bits, where the processor is fast with it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode, RandomCrop, RandomResizedCrop
from torchvision.transforms import functional as tv
from torchvision.transforms.v2 import functional as tv2

from tests.trainables.data.trees import ragged
from trainables.config.images import AugmentConfig
from trainables.data.augment import (
    cut_boxes,
    cut_eval_images,
    draw_random_boxes,
    place_boxes,
    train_images,
)
from trainables.data.images import Images
from trainables.data.resizing import Crops, sample_at_once, sample_one_by_one
from trainables.streams import create_generator

LIKE_OURS = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")  # torchvision's condition
NEAR = {"atol": 1e-3 if LIKE_OURS else 2, "rtol": 0}  # of 255
PLAIN: dict[str, Any] = {"mean": (0, 0, 0), "std": (1 / 255,) * 3, "device": "cpu"}
INDEX = torch.tensor([4, 0, 1, 2, 3, 0, 2])
BOXES = torch.tensor(
    [
        [3, 10, 20, 61],
        [0, 0, 40, 30],
        [5, 50, 12, 3],
        [10, 20, 1, 1],
        [0, 0, 9, 9],
        [7, 2, 30, 28],
        [0, 0, 64, 64],
    ]
)
FLIP = torch.tensor([False, True, False, True, True, False, False])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 30, 70])
@pytest.mark.parametrize("kind", [None, "bilinear", "bicubic"])
def test_crops_equal_torchvisions(kind: Any, size: int, channels: int) -> None:
    images = ragged(channels)
    crops = cut_boxes(Crops(images, INDEX, BOXES, size, FLIP), kind)
    assert crops.is_contiguous(memory_format=torch.channels_last)
    assert crops.dtype == (torch.float32 if kind is None else torch.uint8)
    options: dict[str, Any] = {"size": [size, size], "antialias": kind is not None}
    if kind is not None:
        options["interpolation"] = InterpolationMode(kind)
    for crop, image, box, flip in zip(crops.float(), INDEX, BOXES.tolist(), FLIP, strict=True):
        pixels = images[int(image)].permute(2, 0, 1)
        exact = tv.resized_crop(pixels.float(), *box, **options)
        exact = exact.flip(-1) if flip else exact
        if kind is None:
            torch.testing.assert_close(crop, exact, atol=2e-3, rtol=0)  # of 255
            continue
        wanted = tv2.resized_crop(pixels, *box, **options).float()
        torch.testing.assert_close(crop, wanted.flip(-1) if flip else wanted, **NEAR)
        if kind == "bilinear":  # bicubic ones are cut off at 0 and 255 after each axis, as Pillow's
            assert (crop - exact).abs().max() <= 1.5  # the nearest, or one beside it


def smooth() -> Images:
    """Two photographs with a short side of 256. Away from black and white: Pillow cuts off what
    lies beyond after each axis, we after both."""
    g = torch.Generator().manual_seed(3)
    photographs = []
    for h, w in ((256, 300), (341, 256)):
        coarse = torch.rand(1, 3, h // 8, w // 8, generator=g)
        wide = torch.nn.functional.interpolate(coarse, (h, w), mode="bilinear")
        photographs.append((64 + 128 * wide[0]).byte().permute(1, 2, 0).flatten())
    offsets = torch.tensor([0, len(photographs[0])])
    heights, widths = torch.tensor([256, 341]), torch.tensor([300, 256])
    return Images(torch.cat(photographs), offsets, heights, widths, 3, frame=224 / 256)


@pytest.mark.parametrize("kind", [None, "bilinear", "bicubic"])
@pytest.mark.parametrize("resize", [200, 128])
def test_a_fixed_crop_is_torchvisions_resize_and_crop(resize: int, kind: Any) -> None:
    images, index = smooth(), torch.tensor([0, 1, 0, 1])
    config = AugmentConfig(resize=resize, flip=0, interpolation=kind)
    crops = train_images(
        images, index, config=config, size=96, generator=create_generator(2, "a"), **PLAIN
    )
    g = create_generator(2, "a")
    torch.rand(4, 10, 2, generator=g)
    position = torch.rand(4, 4, generator=g)[:, :2]
    mode, side = InterpolationMode(kind or "bilinear"), torch.tensor([96])
    for row, image in enumerate(index.tolist()):
        small = tv2.resize(images[image].permute(2, 0, 1), [resize], mode, antialias=True).float()
        height, width = torch.tensor([small.shape[1]]), torch.tensor([small.shape[2]])
        box = place_boxes(height, width, side, side, position[row : row + 1])
        top, left = box[0, :2].tolist()
        torch.testing.assert_close(crops[row], tv.crop(small, top, left, 96, 96), **NEAR)


def find_offset(crop: Tensor, pad: int) -> tuple[int, int]:
    """Return where a crop of an image without black pixels was cut out, by its black border."""
    offsets = []
    for axis in (1, 0):
        filled = torch.nonzero((crop[0] > 0).any(axis)).squeeze(1)
        first, last = int(filled[0]), int(filled[-1])
        offsets.append(pad - first if first else pad + crop.shape[-1] - last - 1)
    return offsets[0], offsets[1]


@pytest.mark.parametrize("flip", [0.0, 1.0])
@pytest.mark.parametrize(("channels", "pad"), [(3, 4), (1, 4), (3, 9)])
def test_padded_crops_are_torchvisions(
    channels: int, pad: int, flip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = torch.Generator().manual_seed(5)
    images = Images.from_equal_sizes(
        torch.randint(1, 256, (2, 32, 32, channels), generator=g).byte()
    )
    config, index = AugmentConfig(pad=pad, flip=flip), torch.zeros(40, dtype=torch.int64)
    offsets = set()
    for crop in train_images(images, index, config=config, size=32, generator=g, **PLAIN):
        offset = find_offset(crop.flip(-1) if flip else crop, pad)
        offsets.add(offset)
        monkeypatch.setattr(
            RandomCrop, "get_params", staticmethod(lambda *_, at=offset: (*at, 32, 32))
        )
        wanted = RandomCrop(32, padding=pad)(images[0].permute(2, 0, 1))
        wanted = tv.hflip(wanted) if flip else wanted
        assert torch.equal(crop, wanted.float().expand(3, 32, 32))
    assert len(offsets) > 20


def test_boxes_have_torchvisions_distribution() -> None:
    config = AugmentConfig(crop_scale=(0.16, 1.0))
    n, h, w = 4000, 64, 96
    g = torch.Generator().manual_seed(2)
    draws, position = torch.rand(n, 10, 2, generator=g), torch.rand(n, 2, generator=g)
    ours = draw_random_boxes(
        torch.full((n,), h), torch.full((n,), w), config, draws, position
    ).double()
    torch.manual_seed(3)
    blank = torch.zeros(1, h, w)
    theirs = torch.tensor(
        [RandomResizedCrop.get_params(blank, [0.16, 1.0], [0.75, 4 / 3]) for _ in range(n)]
    ).double()
    for statistic in (torch.mean, torch.std):
        torch.testing.assert_close(statistic(ours, 0), statistic(theirs, 0), rtol=0.06, atol=0.6)
    top, left, height, width = ours.T
    assert (top >= 0).all() and (left >= 0).all() and (height >= 1).all() and (width >= 1).all()
    assert (top + height <= h).all() and (left + width <= w).all()
    assert (top == 0).any() and (top + height == h).any(), "every border is reached"
    assert (left == 0).any() and (left + width == w).any()


@pytest.mark.parametrize(("h", "w"), [(10, 100), (100, 10)])
def test_the_fallback_is_torchvisions(h: int, w: int) -> None:
    # An area share of 1 fits no ratio within [3/4, 4/3] in so long an image.
    config = AugmentConfig(crop_scale=(0.999, 1.0))
    draws, position = torch.rand(1, 10, 2), torch.rand(1, 2)
    (box,) = draw_random_boxes(
        torch.tensor([h]), torch.tensor([w]), config, draws, position
    ).tolist()
    wanted = RandomResizedCrop.get_params(torch.zeros(1, h, w), [0.999, 1.0], [0.75, 4 / 3])
    assert tuple(box) == tuple(wanted)


def test_switched_off_it_is_the_evaluation_crop() -> None:
    images, index = ragged(), torch.tensor([0, 1, 2])
    config = AugmentConfig(crop_scale=(1, 1), flip=0, grey=0)
    crops = train_images(
        images, index, config=config, size=20, generator=create_generator(0, "x"), **PLAIN
    )
    assert torch.equal(crops, cut_eval_images(images, index, size=20, **PLAIN))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_image_by_image_gives_the_bits_of_the_batch_at_once(channels: int, threads: int) -> None:
    """What the CPU does, beside what a GPU does."""
    images, count = ragged(channels), 20
    index = torch.randint(len(images), (count,))
    heights, widths = images.heights[index], images.widths[index]
    position = torch.rand(count, 2)
    boxes = draw_random_boxes(heights, widths, AugmentConfig(), torch.rand(count, 10, 2), position)
    flip = torch.rand(count) < 0.5
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for size in (1, 7, 32):
            crops = Crops(images, index, boxes, size, flip)
            result, wanted = sample_one_by_one(crops), sample_at_once(crops)
            assert torch.equal(result, wanted) and result.stride() == wanted.stride()
    finally:
        torch.set_num_threads(before)
