"""Crops against torchvision's, for the same boxes; draws; layouts of the pixels."""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms import functional as tv

from tests.trainables.data.pictures import HALF, ragged
from trainables.config.images import AugmentConfig
from trainables.data.augment import (
    cut_boxes,
    cut_eval_images,
    draw_random_boxes,
    normalize_pixels,
    train_images,
)
from trainables.data.resizing import Crops, sample_at_once, sample_one_by_one
from trainables.streams import create_generator


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 32, 70])
def test_crops_equal_torchvision(channels: int, size: int) -> None:
    images, index = ragged(channels), torch.tensor([4, 0, 1, 2, 3, 0])
    boxes = torch.tensor(
        [
            [3, 10, 20, 61],
            [0, 0, 40, 30],
            [5, 50, 12, 3],
            [10, 20, 1, 1],
            [0, 0, 9, 9],
            [7, 2, 30, 28],
        ]
    )
    flip = torch.tensor([False, True, False, True, True, False])
    found = cut_boxes(Crops(images, index, boxes, size, flip))
    for row, (image, box) in enumerate(zip(index.tolist(), boxes.tolist(), strict=True)):
        wanted = tv.resized_crop(
            images[image].permute(2, 0, 1).float(), *box, [size, size], antialias=False
        )
        wanted = wanted.flip(-1) if flip[row] else wanted
        torch.testing.assert_close(found[row], wanted, atol=2e-3, rtol=0)  # of 255


def test_boxes_have_torchvisions_distribution() -> None:
    config = AugmentConfig(crop_scale=(0.16, 1.0))
    n, h, w = 4000, 64, 96
    g = torch.Generator().manual_seed(2)
    draws, place = torch.rand(n, 10, 2, generator=g), torch.rand(n, 2, generator=g)
    ours = draw_random_boxes(
        torch.full((n,), h), torch.full((n,), w), config, draws, place
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
    # Every border is reached.
    assert (top == 0).any() and (top + height == h).any()
    assert (left == 0).any() and (left + width == w).any()


@pytest.mark.parametrize(("h", "w"), [(10, 100), (100, 10)])
def test_the_fallback_is_torchvisions(h: int, w: int) -> None:
    # An area share of 1 fits no ratio within [3/4, 4/3] in so long an image.
    config = AugmentConfig(crop_scale=(0.999, 1.0))
    draws, place = torch.rand(1, 10, 2), torch.rand(1, 2)
    (box,) = draw_random_boxes(torch.tensor([h]), torch.tensor([w]), config, draws, place).tolist()
    wanted = RandomResizedCrop.get_params(torch.zeros(1, h, w), [0.999, 1.0], [0.75, 4 / 3])
    assert tuple(box) == tuple(wanted)


def test_switched_off_it_is_the_evaluation_crop() -> None:
    images, index = ragged(), torch.tensor([0, 1, 2])
    config = AugmentConfig(crop_scale=(1, 1), flip=0, grey=0)
    found = train_images(
        images,
        index,
        config=config,
        size=20,
        mean=HALF,
        std=HALF,
        generator=create_generator(0, "x"),
        device="cpu",
    )
    wanted = cut_eval_images(images, index, size=20, mean=HALF, std=HALF, device="cpu")
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_image_by_image_gives_the_bits_of_the_batch_at_once(channels: int, threads: int) -> None:
    """What the CPU does, beside what a GPU does."""
    images, count = ragged(channels), 20
    index = torch.randint(len(images), (count,))
    heights, widths = images.heights[index], images.widths[index]
    place = torch.rand(count, 2)
    boxes = draw_random_boxes(heights, widths, AugmentConfig(), torch.rand(count, 10, 2), place)
    flip = torch.rand(count) < 0.5
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for size in (1, 7, 32):
            crops = Crops(images, index, boxes, size, flip)
            made, wanted = sample_one_by_one(crops), sample_at_once(crops)
            assert torch.equal(made, wanted) and made.stride() == wanted.stride()
    finally:
        torch.set_num_threads(before)


def test_normalised_equals_torchvision() -> None:
    x = torch.rand(2, 3, 4, 4) * 255
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    torch.testing.assert_close(normalize_pixels(x, mean, std), tv.normalize(x / 255, mean, std))
