"""What an exported model takes as images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from trainables.data.augment import eval_images
from trainables.errors import ConfigError
from trainables.export import as_images

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)


def test_of_an_embedded_data_set_pil_images_and_arrays_are_the_same_input() -> None:
    pictures = [Image.fromarray(pixels) for pixels in PIXELS]
    made = [
        eval_images(as_images(given, 1.0, 32), torch.arange(3), size=32, mean=(0.5,) * 3,
                    std=(0.5,) * 3, device=torch.device("cpu"))
        for given in (PIXELS, pictures)
    ]  # fmt: skip
    assert torch.equal(*made)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (PIXELS[0], r"images\[None\]"),
        ("photo.jpg", "PIL.Image.open"),
        (PIXELS.astype(np.float32), "uint8"),
    ],
)
def test_one_line_for_what_is_no_batch(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        as_images(given, 1.0, 32)
