"""Photographs of a stated number and size, made quickly: a few hundred noisy pictures, each stored
under many names, with a byte that differs, in class folders.

How long a JPEG takes to decode goes by its pixels and its bytes. The noise is such that 500 × 375
take as many as CUB-200-2011's, 97 kB (11,788 in 1.15 GB).
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

UNLIKE = 200  # pictures that are drawn; the others are copies
NOISE, QUALITY = 9, 95


def photographs(root: Path, count: int, size: tuple[int, int], classes: int) -> Path:
    """`count` JPEG files of `size` (width, height) in `classes` folders."""
    made = [_encoded(size, seed) for seed in range(min(UNLIKE, count))]
    folders = [root / f"{number:05d}" for number in range(classes)]
    for folder in folders:
        folder.mkdir(parents=True)
    for number in range(count):
        # What follows the end of a JPEG is not decoded; it makes each file another.
        content = made[number % len(made)] + number.to_bytes(4, "big")
        (folders[number * classes // count] / f"{number:06d}.jpg").write_bytes(content)
    return root


def _encoded(size: tuple[int, int], seed: int) -> bytes:
    g, (width, height) = np.random.default_rng(seed), size
    coarse = g.integers(0, 256, (max(2, height // 12), max(2, width // 12), 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)).astype(int)
    noisy = (
        (smooth + g.integers(-NOISE, NOISE + 1, (height, width, 3))).clip(0, 255).astype(np.uint8)
    )
    out = io.BytesIO()
    Image.fromarray(noisy).save(out, "JPEG", quality=QUALITY)
    return out.getvalue()
