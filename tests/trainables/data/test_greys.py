"""Images of more than 8 bits: read as stated, or refused where their values fill little of it."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from trainables.config.images import DataConfig
from trainables.core.identity import compute_config_hash
from trainables.data.dataset import fingerprint, load_dataset
from trainables.data.decode import ImageSource, decode_picture
from trainables.data.features import build_features_key
from trainables.data.survey import Survey
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError

Y, X = np.mgrid[0:16, 0:20] / 19
SHADES = 0.5 + 0.5 * np.sin(6 * X) * np.cos(5 * Y)  # of 0 … 1


def save_integers(path: Path, low: int, high: int, kind: str = "I;16", ending: str = "png") -> None:
    values = low + SHADES * (high - low)
    dtype = {"I;16": np.uint16, "I;16B": np.dtype(">u2"), "I": np.int32}[kind]
    Image.fromarray(values.astype(dtype)).save(path.with_suffix(f".{ending}"))


def save_floats(path: Path, low: float, high: float) -> None:
    values = low + SHADES * (high - low)
    Image.fromarray(values.astype(np.float32)).save(path.with_suffix(".tif"))


def save_deep_png(path: Path, high: int, channels: int = 3) -> None:
    """Write a PNG of 16 bits a channel, which Pillow reads as 8 and cannot write."""
    values = np.repeat((SHADES * high).astype(">u2")[..., None], channels, 2)
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    head = struct.pack(">IIBBBBB", 20, 16, 16, {2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    path.with_suffix(".png").write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + b"".join(
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
            for kind, content in chunks
        )
    )


def save_bytes(path: Path, shade: int | None = None) -> None:
    values = 255 * SHADES if shade is None else np.full_like(SHADES, shade)
    Image.fromarray(values.astype(np.uint8)).save(path.with_suffix(".png"))


def make_folder(root: Path, *savers: Callable[[Path], None], count: int = 8) -> Path:
    """Fill four class folders with images, by the savers in turn."""
    for number in range(count):
        path = root / f"class {number % 4}" / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        savers[number % len(savers)](path)
    return root


def config(root: Path, **options: Any) -> DataConfig:
    return DataConfig(name="folder", root=str(root), image_size=16, **options)


def load_pixels(root: Path, cache: Path, **options: Any) -> np.ndarray:
    """Return the first image as stored in full size."""
    images = load_dataset(config(root, stored_side="original", **options), cache).images
    return images[0].numpy()


SMALL: dict[str, tuple[Callable[[Path], None], str, list[float]]] = {
    # images, words of the message, the range that it suggests
    "8 bits in 16": (lambda path: save_integers(path, 0, 255), "0 to 255", [0, 255]),
    "10 bits in 16": (lambda path: save_integers(path, 3, 1000), "3 to 1000", [0, 1023]),
    "12 bits in 16": (lambda path: save_integers(path, 0, 4095), "0 to 4095", [0, 4095]),
    "14 bits, TIFF": (
        lambda path: save_integers(path, 0, 16000, ending="tif"),
        "0 to 16000",
        [0, 16383],
    ),
    "12 bits, big-endian": (
        lambda path: save_integers(path, 0, 4095, "I;16B", "tif"),
        "0 to 4095",
        [0, 4095],
    ),
    "8 bits in 32": (lambda path: save_integers(path, 0, 255, "I", "tif"), "0 to 255", [0, 255]),
    "24 bits in 32": (
        lambda path: save_integers(path, 0, 2**24 - 1, "I", "tif"),
        "0 to 1.67772e+07",
        [0, 16777215],
    ),
    "negative": (
        lambda path: save_integers(path, -1000, 3000, "I", "tif"),
        "-1000 to 3000",
        [-1000, 4095],
    ),
    "floats to 1": (lambda path: save_floats(path, 0, 1), "0 to 1", [0, 1]),
    "floats to 0.9": (lambda path: save_floats(path, 0, 0.9), "0 to 0.9", [0, 1]),
    "floats to 0.01": (lambda path: save_floats(path, 0, 0.01), "0 to 0.01", [0, 0.01]),
    "floats from -1": (lambda path: save_floats(path, -1, 1), "-1 to 1", [-1, 1]),
    "floats to 4000": (lambda path: save_floats(path, 0, 4000), "0 to 4000", [0, 4000]),
    "thermal": (lambda path: save_integers(path, 30000, 31000), "30000 to 31000", [30000, 31000]),
    "thermal, 32 bits": (
        lambda path: save_integers(path, 61000, 64000, "I", "tif"),
        "61000 to 64000",
        [61000, 64000],
    ),
    "floats of little contrast": (
        lambda path: save_floats(path, 200, 210),
        "200 to 210",
        [200, 210],
    ),
    "kelvins": (lambda path: save_floats(path, 290, 310), "290 to 310", [290, 310]),
    "floats from -200": (lambda path: save_floats(path, -200, 250), "-200 to 250", [-200, 250]),
}


@pytest.mark.parametrize("case", SMALL)
def test_a_small_part_is_refused_and_the_remedy_reads_it(case: str, tmp_path: Path) -> None:
    save, found, suggested = SMALL[case]
    root = make_folder(tmp_path / "data", save)
    for store in ("pixels", "encoded"):
        with pytest.raises(ConfigError) as caught:
            load_pixels(root, tmp_path / "cache", store=store)
    message = str(caught.value)
    assert "8 of 8 images" in message and "\n" not in message
    spread = r"[-\d.e+]+ to [-\d.e+]+"
    (actual,) = re.findall(rf"have values from ({spread}), but", message)
    low, high = map(float, actual.split(" to "))
    expected_low, expected_high = map(float, found.split(" to "))
    span = expected_high - expected_low
    assert abs(low - expected_low) < 0.02 * span and abs(high - expected_high) < 0.02 * span
    (text,) = re.findall(r"data\.grey_range: \[(.*?)\]", message)
    assert [float(value) for value in text.split(", ")] == pytest.approx(suggested, rel=0.01)

    # the images are then read as shades of the stated range
    black, white = suggested
    values = expected_low + SHADES * span
    expected = (255 * ((values - black) / (white - black)).clip(0, 1)).round()
    for store in ("pixels", "encoded"):
        pixels = load_pixels(root, tmp_path / "cache", grey_range=suggested, store=store)
        assert pixels.shape == (16, 20, 3)
        step = 2 + 255 * (not case.startswith("floats")) / (white - black)  # integers were cut off
        assert abs(pixels.astype(int) - expected[..., None]).max() <= step


def save_deep_ppm(path: Path, high: int, *, is_text: bool) -> None:
    values = np.repeat((SHADES * high).astype(">u2").reshape(-1), 3)
    body = " ".join(map(str, values)).encode() if is_text else values.tobytes()
    path.with_suffix(".ppm").write_bytes(f"P{3 if is_text else 6} 20 16 65535\n".encode() + body)


def save_deep_sgi(path: Path, high: int) -> None:
    plane = (SHADES * high).astype(">u2").tobytes()
    head = struct.pack(">hbbHHHHII", 474, 0, 2, 3, 20, 16, 3, 0, 65535)
    path.with_suffix(".sgi").write_bytes(head.ljust(512, b"\0") + 3 * plane)


@pytest.mark.parametrize(
    "save",
    [partial(save_deep_ppm, is_text=False), partial(save_deep_ppm, is_text=True), save_deep_sgi],
    ids=["PPM", "PPM as text", "SGI"],
)
def test_colours_of_16_bits_in_other_formats(
    save: Callable[[Path, int], None], tmp_path: Path
) -> None:
    dark = make_folder(tmp_path / "dark", lambda path: save(path, 4095))
    with pytest.raises(ConfigError, match=r"8 of 8 .* 16 bits.* Convert these images to 8 bits"):
        load_pixels(dark, tmp_path / "cache")
    full = make_folder(tmp_path / "full", lambda path: save(path, 65535))
    assert load_pixels(full, tmp_path / "cache").max() == 255


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_colours_of_16_bits_that_pillow_cuts_to_8(channels: int, tmp_path: Path) -> None:
    dark = make_folder(tmp_path / "dark", lambda path: save_deep_png(path, 4095, channels))
    for grey_range in (None, (0, 4095)):  # which has no effect on colours
        with pytest.raises(
            ConfigError, match=r"8 of 8 .* 16 bits.* Convert these images to 8 bits"
        ):
            load_pixels(dark, tmp_path / "cache", grey_range=grey_range)
    full = make_folder(tmp_path / "full", lambda path: save_deep_png(path, 65535, channels))
    pixels = load_pixels(full, tmp_path / "cache")
    assert channels != 3 or np.array_equal(pixels[..., 0], (SHADES * 65535).astype(int) >> 8)


FULL: dict[str, tuple[Callable[[Path], None], np.ndarray]] = {
    "16 bits": (lambda path: save_integers(path, 0, 65535), (SHADES * 65535).astype(int) >> 8),
    "16 bits, TIFF": (
        lambda path: save_integers(path, 0, 65535, "I;16B", "tif"),
        (SHADES * 65535).astype(int) >> 8,
    ),
    "half of 16 bits": (
        lambda path: save_integers(path, 0, 32767),
        (SHADES * 32767).astype(int) >> 8,
    ),
    "16 bits in 32": (
        lambda path: save_integers(path, 0, 65535, "I", "tif"),
        (SHADES * 65535).astype(int) >> 8,
    ),
    "PGM of 16 bits": (
        lambda path: save_integers(path, 0, 65535, "I", "pgm"),
        (SHADES * 65535).astype(int) >> 8,
    ),
    "floats to 255": (
        lambda path: save_floats(path, 0, 255),
        (SHADES.astype(np.float32) * 255).astype(int),
    ),
    "16 bits, an eighth": (
        lambda path: save_integers(path, 30000, 40000),
        (30000 + SHADES * 10000).astype(int) >> 8,
    ),
    "8 bits": (save_bytes, (SHADES * 255).astype(int)),
    "8 bits, dark": (
        lambda path: Image.fromarray((SHADES * 9).astype(np.uint8)).save(f"{path}.png"),
        (SHADES * 9).astype(int),
    ),
}


@pytest.mark.parametrize("case", FULL)
def test_a_full_range_is_read_as_ever(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save, expected = FULL[case]
    pixels = load_pixels(make_folder(tmp_path / "data", save), tmp_path / "cache")
    assert abs(pixels.astype(int) - expected[..., None]).max() <= (1 if "floats" in case else 0)
    assert not caplog.records


def test_images_are_judged_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A dark photograph among bright ones is one; half of them are a fault."""

    def save_dark(path: Path) -> None:
        save_integers(path, 0, 3000)

    def save_bright(path: Path) -> None:
        save_integers(path, 0, 65535)

    few = make_folder(tmp_path / "few", save_dark, save_bright, save_bright, save_bright)
    load_pixels(few, tmp_path / "cache")
    assert "2 of 8 images" in caplog.text and "class 0/0.png" in caplog.text
    half = make_folder(tmp_path / "half", save_dark, save_bright)
    with pytest.raises(ConfigError, match=r"4 of 8 images .* \[0, 4095\]"):
        load_pixels(half, tmp_path / "cache")
    # pictures of 8 bits do not hide those of more
    mixed = make_folder(tmp_path / "mixed", save_dark, save_bytes, save_bytes, save_bytes)
    with pytest.raises(ConfigError, match="2 of 2 images with greys of 16 or 32 bits"):
        load_pixels(mixed, tmp_path / "cache")
    with pytest.raises(ConfigError, match="2 of 2 images with float greys"):
        floats = make_folder(
            tmp_path / "floats", lambda p: save_floats(p, 0, 1), *[save_bright] * 3
        )
        load_pixels(floats, tmp_path / "cache")


def test_a_range_that_makes_images_black_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = make_folder(tmp_path / "data", lambda path: save_integers(path, 0, 255))
    assert load_pixels(root, tmp_path / "cache", grey_range=(0, 65535)).max() <= 1
    assert "8 of 8 images" in caplog.text


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_floats_that_are_no_numbers_are_named(value: float, tmp_path: Path) -> None:
    values = (SHADES * 255).astype(np.float32)
    values[3, 4] = value
    Image.fromarray(values).save(tmp_path / "a.tif")
    for grey_range in (None, (0.0, 255.0)):
        with pytest.raises(ConfigError, match=r"a\.tif: .* NaN or infinite values"):
            decode_picture(ImageSource(tmp_path / "a.tif"), None, grey_range)


def test_constant_images_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = make_folder(tmp_path / "data", lambda path: save_bytes(path, 7), save_bytes)
    load_pixels(root, tmp_path / "cache")
    assert "4 of 8 images have a single colour" in caplog.text and "class 0/0.png" in caplog.text
    caplog.clear()
    few = make_folder(tmp_path / "few", *[save_bytes] * 150, count=150)
    save_bytes(few / "class 0" / "0", 7)
    load_pixels(few, tmp_path / "cache")
    assert not caplog.records


def test_images_that_an_older_version_stored_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_folder(tmp_path / "data", lambda path: save_integers(path, 0, 255))
    with monkeypatch.context() as patched:
        patched.setattr(Survey, "save", lambda *_: None)
        assert load_pixels(root, tmp_path / "cache").max() == 0  # as that version did
    with pytest.raises(ConfigError, match=r"grey_range: \[0, 255\]"):
        load_pixels(root, tmp_path / "cache")


def test_the_range_is_part_of_ids_and_caches_where_it_is_stated(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "data", save_bytes)
    configs = [config(root, grey_range=pair) for pair in (None, (0, 4095), (0, 255))]
    assert len({fingerprint(each, tmp_path / "cache") for each in configs}) == 1
    trials = [
        TrialConfig.model_validate(
            {"data": each, "backbone": {"name": "test_resnet", "weights": "none", "mode": "frozen"}}
        )
        for each in configs
    ]
    assert len({compute_config_hash(trial, "") for trial in trials}) == 3
    assert len({build_features_key(trial, tmp_path / "cache") for trial in trials}) == 3
    assert len({each.images for each in configs}) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grey_range": [4095, 0]}, "must be the value of black and a larger one of white"),
        ({"grey_range": [1, 1]}, "must be the value of black and a larger one of white"),
        ({"grey_range": [0, float("inf")]}, "finite"),
        ({"grey_range": [0]}, "grey_range"),
        ({"grey_range": [0, 255], "name": "digits"}, "is for photographs"),
    ],
)
def test_ranges_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        DataConfig.model_validate({"name": "folder", **options})


def test_resizing_and_boxes_follow_the_conversion(tmp_path: Path) -> None:
    save_integers(tmp_path / "a", 0, 4095)
    whole = decode_picture(ImageSource(tmp_path / "a.png"), None, (0, 4095))
    cut = decode_picture(ImageSource(tmp_path / "a.png", None, (2, 3, 12, 13)), None, (0, 4095))
    assert np.array_equal(cut, whole[3:13, 2:12])
    small = decode_picture(ImageSource(tmp_path / "a.png"), 8, (0, 4095))
    wanted = Image.fromarray(whole).resize((10, 8), Image.Resampling.BILINEAR)
    assert np.array_equal(small, np.asarray(wanted))
    assert torch.from_numpy(whole.copy()).max() == 255
