"""Antialiased crops against torchvision's at the same boxes, and crops of a fixed size.

torchvision's functions of before 2 resize floats, and round nothing of pictures of 8 bits before
the end; those of version 2 take torch's kernel of 8 bits, where the processor is fast with it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as tv
from torchvision.transforms.v2 import functional as tv2

from tests.trainables.data.pictures import ragged
from trainables.config.images import AugmentConfig
from trainables.data.augment import draw_fixed_boxes, train_images
from trainables.data.images import Images
from trainables.data.resizing import Crops, resample_boxes
from trainables.streams import create_generator

KINDS = ("bilinear", "bicubic")
LIKE_OURS = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")  # torchvision's condition
NEAR = {"atol": 1e-3 if LIKE_OURS else 2, "rtol": 0}  # of 255
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
PLAIN: dict[str, Any] = {"mean": (0, 0, 0), "std": (1 / 255,) * 3, "device": "cpu"}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 30, 70])
@pytest.mark.parametrize("kind", KINDS)
def test_crops_equal_torchvisions(kind: Any, size: int, channels: int) -> None:
    images = ragged(channels)
    found = resample_boxes(Crops(images, INDEX, BOXES, size, FLIP), kind)
    assert found.dtype == torch.uint8 and found.is_contiguous(memory_format=torch.channels_last)
    found = found.float()
    for row, (image, box) in enumerate(zip(INDEX.tolist(), BOXES.tolist(), strict=True)):
        options: dict[str, Any] = {"interpolation": InterpolationMode(kind), "antialias": True}
        pixels, shape = images[image].permute(2, 0, 1), [size, size]
        wanted = tv2.resized_crop(pixels, *box, shape, **options).float()
        wanted = wanted.flip(-1) if FLIP[row] else wanted
        torch.testing.assert_close(found[row], wanted, **NEAR)
        if kind == "bilinear":  # bicubic ones are cut off at 0 and 255 after each axis, as Pillow's
            exact = tv.resized_crop(pixels.float(), *box, shape, **options)
            exact = exact.flip(-1) if FLIP[row] else exact
            assert (found[row] - exact).abs().max() <= 1.5  # the nearest, or one beside it


def smooth() -> Images:
    """Two photographs with a short side of 256. Away from black and white: Pillow cuts off what
    lies beyond after each axis, we after both."""
    g = torch.Generator().manual_seed(3)
    made = []
    for h, w in ((256, 300), (341, 256)):
        coarse = torch.rand(1, 3, h // 8, w // 8, generator=g)
        wide = torch.nn.functional.interpolate(coarse, (h, w), mode="bilinear")
        made.append((64 + 128 * wide[0]).byte().permute(1, 2, 0))
    lengths = torch.tensor([each.numel() for each in made])
    return Images(
        torch.cat([each.flatten() for each in made]),
        lengths.cumsum(0) - lengths,
        torch.tensor([256, 341]),
        torch.tensor([300, 256]),
        3,
        frame=224 / 256,
    )


@pytest.mark.parametrize("kind", [None, "bilinear", "bicubic"])
@pytest.mark.parametrize("resize", [200, 128])
def test_a_fixed_crop_is_torchvisions_resize_and_crop(resize: int, kind: Any) -> None:
    images, index = smooth(), torch.tensor([0, 1, 0, 1])
    config = AugmentConfig(resize=resize, flip=0, interpolation=kind)
    found = train_images(
        images, index, config=config, size=96, generator=create_generator(2, "a"), **PLAIN
    )
    g = create_generator(2, "a")
    torch.rand(4, 10, 2, generator=g)
    place = torch.rand(4, 4, generator=g)[:, :2]
    mode = InterpolationMode(kind or "bilinear")
    for row, image in enumerate(index.tolist()):
        small = tv2.resize(images[image].permute(2, 0, 1), [resize], mode, antialias=True).float()
        height, width = torch.tensor([small.shape[1]]), torch.tensor([small.shape[2]])
        ((top, left, *_),) = draw_fixed_boxes(height, width, 96, place[row : row + 1]).tolist()
        torch.testing.assert_close(found[row], tv.crop(small, top, left, 96, 96), **NEAR)
