"""One image file to uint8 RGB.

Deviations from torchvision's ImageFolder pipeline: the EXIF orientation is applied, transparent
pixels become white (not whatever colour lies under them), 16-bit greys keep their upper byte.
Resizing is Pillow's antialiased bilinear, as torchvision's Resize of a Pillow image.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from trainables.errors import ConfigError


def decoded(path: Path, short: int) -> np.ndarray:
    """[H, W, 3] uint8 with min(H, W) = `short`; the long side is rounded down.

    Raises:
        ConfigError: not an image, damaged or truncated; names the file.
    """
    try:
        with Image.open(path) as opened:
            image = rgb(ImageOps.exif_transpose(opened))
    except MemoryError:
        raise  # the machine's fault, not the file's
    except Exception as error:
        # Pillow's plugins raise whatever their parsers meet: OSError, SyntaxError, struct.error…
        raise ConfigError(
            str(path),
            f"an image that cannot be read ({error})",
            "a whole image file",
            "Replace or remove the file",
        ) from error
    width, height = image.size
    scale = short / min(width, height)
    size = (short, int(height * scale)) if width <= height else (int(width * scale), short)
    if size != image.size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(image)


def rgb(image: Image.Image) -> Image.Image:
    """RGB; transparency over white, 16-bit greys by their upper byte."""
    """8-bit RGB, by the rules above."""
    if image.mode.startswith("I;16") or image.mode == "I":
        upper = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255)
        return Image.fromarray(upper.astype(np.uint8)).convert("RGB")
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")
