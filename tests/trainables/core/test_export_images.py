"""What an exported model takes as images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

from trainables.core.export import convert_to_images
from trainables.data.augment import cut_eval_images
from trainables.data.decode import Picture, decode_picture
from trainables.errors import ConfigError

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)


def test_of_an_embedded_data_set_pil_images_and_arrays_are_the_same_input() -> None:
    pictures = [Image.fromarray(pixels) for pixels in PIXELS]
    made = [
        cut_eval_images(
            convert_to_images(given, 1.0, None),
            torch.arange(3),
            size=32,
            mean=(0.5,) * 3,
            std=(0.5,) * 3,
            device=torch.device("cpu"),
        )
        for given in (PIXELS, pictures)
    ]
    assert torch.equal(*made)


@pytest.mark.parametrize("size", [(20, 30), (400, 90), (73, 73), (61, 61), (90, 120)])
@pytest.mark.parametrize("turned", [1, 6])
def test_pictures_are_brought_to_the_size_that_a_data_folders_have(
    tmp_path: Path, size: tuple[int, int], turned: int
) -> None:
    """Smaller ones too, and upright, as the camera says that they are."""
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = turned
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    wanted = decode_picture(Picture(tmp_path / "a.png"), 73)
    with Image.open(tmp_path / "a.png") as opened:
        images = convert_to_images(opened, 64 / 73, 73)
    shape = int(images.heights[0]), int(images.widths[0]), 3
    assert np.array_equal(images.flat.numpy().reshape(shape), wanted)


def test_pictures_beyond_the_limits_of_files_are_refused() -> None:
    small, bomb = Image.new("RGB", (40, 40)), Image.new("1", (13_000, 13_000))
    with pytest.raises(ConfigError, match=r"^images\[1\]: the image has 13,000 × 13,000 pixels"):
        convert_to_images([small, bomb], 1.0, None)


def test_ghostscript_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("was started"))
    Image.new("RGB", (40, 40)).save(tmp_path / "a.eps")
    with (
        Image.open(tmp_path / "a.eps") as drawing,
        pytest.raises(ConfigError, match=r"^images\[0\]: an EPS drawing"),
    ):
        convert_to_images(drawing, 1.0, None)
