"""`data.augment.pad` beside torchvision's RandomCrop(padding=…) at the same offsets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.transforms import RandomCrop
from torchvision.transforms import functional as tv

from trainables.config.images import AugmentConfig
from trainables.data.augment import train_images
from trainables.data.images import Images

AS_THEY_ARE: dict[str, Any] = {"mean": (0, 0, 0), "std": (1 / 255,) * 3, "device": "cpu"}


def augmented(images: Images, n: int, seed: int = 0, size: int = 32, **options: Any) -> Tensor:
    """[n, 3, S, S] in 0 … 255 of the first image, n times."""
    return train_images(
        images,
        torch.zeros(n, dtype=torch.int64),
        config=AugmentConfig(**options),
        size=size,
        generator=torch.Generator().manual_seed(seed),
        **AS_THEY_ARE,
    )


def pictures(channels: int = 3, side: int = 32) -> Images:
    g = torch.Generator().manual_seed(5)
    shape = (2, side, side, channels) if channels > 1 else (2, side, side)
    return Images.from_equal_sizes(torch.randint(1, 256, shape, generator=g).byte())


def offsets(found: Tensor, pad: int) -> tuple[int, int]:
    """Where a crop of an image without black pixels was cut out: from its black border."""
    inside = found[0] > 0
    down, across = (torch.nonzero(inside.any(axis)).squeeze(1) for axis in (1, 0))
    side = found.shape[-1]

    def offset(seen: Tensor) -> int:
        begins, ends = int(seen[0]), int(seen[-1]) + 1
        return pad - begins if begins else pad + side - ends

    return offset(down), offset(across)


@pytest.mark.parametrize("flip", [0.0, 1.0])
@pytest.mark.parametrize(("channels", "pad"), [(3, 4), (1, 4), (3, 9)])
def test_it_is_torchvisions(
    channels: int, pad: int, flip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = pictures(channels)
    picture = images[0].permute(2, 0, 1)
    theirs = RandomCrop(32, padding=pad)
    seen = set()
    for found in augmented(images, 40, pad=pad, flip=flip):
        cut = found.flip(-1) if flip else found
        top, left = offsets(cut, pad)
        seen.add((top, left))
        monkeypatch.setattr(
            RandomCrop, "get_params", staticmethod(lambda *_, at=(top, left): (*at, 32, 32))
        )
        wanted = theirs(picture)
        wanted = tv.hflip(wanted) if flip else wanted
        assert torch.equal(found, wanted.float().expand(3, 32, 32))
    assert len(seen) > 20


def test_every_offset_is_as_likely() -> None:
    n, pad = 2_430, 4
    found = [offsets(each, pad) for each in augmented(pictures(), n, pad=pad, flip=0)]
    counts = torch.zeros(9, 9)
    for top, left in found:
        counts[top, left] += 1
    chi_squared = ((counts - n / 81).square() / (n / 81)).sum()
    assert chi_squared < 131.1  # 80 degrees of freedom: 0.9997 of draws are below
