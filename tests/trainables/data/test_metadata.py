"""Damaged metadata never decide whether pixels are read; good ones turn images upright."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from trainables.data.decode import ImageSource, decode_picture, turn_upright
from trainables.words.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore:::PIL")  # pytest resets the filters of modules
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
LARGE = zlib.compress(bytes(2_000_000))  # a text that Pillow refuses to unpack


def encode(format: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    lossless = {"lossless": True} if format == "WEBP" else {}
    Image.fromarray(PIXELS).save(file, format, **lossless, **options)
    return file.getvalue()


def decode(content: bytes) -> np.ndarray:
    return decode_picture(ImageSource(Path("a file"), content), None)


def build_tiff(*entries: tuple[int, int, int, bytes], order: str = "<") -> bytes:
    """Return a directory of EXIF with entries (tag, type, count, four bytes of the value)."""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    packed = [struct.pack(order + "HHI", *entry[:3]) + entry[3] for entry in entries]
    return head + struct.pack(order + "H", len(entries)) + b"".join(packed) + bytes(4)


TURNED = (0x112, 3, 1, struct.pack("<HH", 6, 0))  # orientation 6: the camera was upright
RATIONAL = (0x11A, 5, 1, struct.pack("<I", 38))  # a resolution, whose value follows
EXIF = {  # bytes, and whether an orientation can be read
    "twice": (b"Exif\0\0Exif\0\0" + build_tiff(TURNED), True),
    "rational": (b"Exif\0\0" + build_tiff(TURNED, RATIONAL) + struct.pack("<ii", -1, 0), True),
    "two values": (
        b"Exif\0\0" + build_tiff((0x112, 3, 2, struct.pack("<HH", 6, 6))),
        True,
    ),
    "thumbnail beyond the file": (
        b"Exif\0\0" + build_tiff(TURNED)[:-4] + struct.pack("<I", 99_999),
        True,
    ),
    "maker note beyond the file": (
        b"Exif\0\0" + build_tiff(TURNED, (0x927C, 7, 4000, struct.pack("<I", 77_777))),
        True,
    ),
    "big-endian header": (b"Exif\0\0MM" + build_tiff(TURNED)[2:], False),
    "garbage": (b"Exif\0\0\0\x08\0\x02\x01\x12\0\x03" + bytes(20), False),
    "no header": (b"Exif\0\0II", False),
    "short": (b"Exif\0\0" + build_tiff(TURNED, TURNED)[:18], False),
    "no directory": (b"Exif\0\0" + build_tiff()[:8], False),
    "far directory": (b"Exif\0\0II*\0\xff\xff\xff\xff", False),
    "empty": (b"Exif\0\0", False),
    "unknown type": (b"Exif\0\0" + build_tiff((0x112, 99, 1, bytes(4))), False),
    "text": (b"Exif\0\0" + build_tiff((0x112, 2, 4, b"6\0\0\0")), False),
    "zero": (b"Exif\0\0" + build_tiff((0x112, 3, 1, bytes(4))), False),
    "nine": (b"Exif\0\0" + build_tiff((0x112, 3, 1, struct.pack("<HH", 9, 0))), False),
    "divided by zero": (b"Exif\0\0" + build_tiff((0x112, 5, 1, bytes(4))), False),
}


@pytest.mark.parametrize(
    ("damage", "format"),
    [(damage, format) for damage in EXIF for format in ("JPEG", "PNG", "WEBP")]
    + [("twice", "AVIF"), ("rational", "AVIF")],  # whose encoder refuses most of them
)
def test_pixels_are_read_whatever_exif_says(damage: str, format: str) -> None:
    exif, is_turned = EXIF[damage]
    plain = decode(encode(format))
    expected = np.rot90(plain, -1) if is_turned else plain
    assert np.array_equal(decode(encode(format, exif=exif)), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("source", ["exif", "xmp", "attribute"])
def test_good_orientations_are_those_of_pillow(orientation: int, format: str, source: str) -> None:
    text = f'tiff:Orientation="{orientation}"'
    if source == "attribute":
        text = f"<tiff:Orientation>{orientation}</tiff:Orientation>"
    options: dict[str, Any] = {"xmp": f"<x:xmpmeta {text}/>".encode()}
    if source == "exif":
        exif = Image.Exif()
        exif[0x112] = orientation
        options = {"exif": exif}
    elif format == "PNG":
        info = PngInfo()
        info.add_itxt("XML:com.adobe.xmp", options["xmp"].decode())
        options = {"pnginfo": info}
    content = encode(format, **options)
    with Image.open(BytesIO(content)) as opened:
        expected = np.asarray(ImageOps.exif_transpose(opened))
    assert np.array_equal(decode(content), expected)
    if format != "TIFF" or source == "exif":  # Pillow does not turn TIFF by XMP
        assert expected.shape[0] == (20 if orientation > 4 else 12)


def test_xmp_turns_where_exif_cannot_be_read() -> None:
    xmp = b'<x tiff:Orientation="6"/>'
    turned = decode(encode("WEBP", exif=EXIF["garbage"][0], xmp=xmp))
    assert np.array_equal(turned, np.rot90(PIXELS, -1))
    for broken in (b"not xml", b'tiff:Orientation="x"', b'tiff:Orientation="\xd9\xa3"', b"\xff"):
        assert np.array_equal(decode(encode("WEBP", xmp=broken)), PIXELS)


def build_chunk(kind: bytes, content: bytes, checksum: int | None = None) -> bytes:
    intact = zlib.crc32(kind + content)
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", intact if checksum is None else checksum)
    )


@pytest.mark.parametrize(
    "chunk",
    [
        build_chunk(b"eXIf", EXIF["garbage"][0][6:], checksum=0),
        build_chunk(b"tEXt", b"Comment\0a", checksum=1),
        build_chunk(b"zTXt", b"Comment\0\0" + LARGE),
        build_chunk(b"zTXt", b"Comment\0\x63" + LARGE),
        build_chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + LARGE),
        build_chunk(b"iCCP", b"profile\0\7"),
        build_chunk(b"pHYs", b"\0"),
        build_chunk(b"gAMA", b""),
        build_chunk(b"cHRM", bytes(5)),
        build_chunk(b"sRGB", b""),
        build_chunk(b"acTL", b"\0"),
        build_chunk(b"fcTL", bytes(3)),
    ],
    ids=lambda chunk: f"{chunk[4:8].decode()}-{len(chunk)}",
)
@pytest.mark.parametrize("start", [33, -12])
def test_damaged_chunks_of_a_png(chunk: bytes, start: int) -> None:
    """After the header, and before the end; a readable orientation beside them still counts."""
    content = encode()
    assert np.array_equal(decode(content[:start] + chunk + content[start:]), PIXELS)
    exif = build_chunk(b"eXIf", build_tiff(TURNED))
    turned = decode(content[:start] + chunk + exif + content[start:])
    if chunk[4:8] != b"eXIf":
        assert np.array_equal(turned, np.rot90(PIXELS, -1))


@pytest.mark.parametrize(
    ("marker", "body"),
    [
        (0xE0, b"JFIF\0"),
        (0xE2, b"ICC_PROFILE\0"),
        (0xE2, b"MPF\0II*\0"),
        (0xED, b"Photoshop 3.0\x008BIM\x03\xed"),
        (0xEE, b"Adobe"),
        (0xFE, bytes(range(256)) * 4),
    ],
)
def test_damaged_segments_of_a_jpeg(marker: int, body: bytes) -> None:
    plain = encode("JPEG", exif=EXIF["twice"][0])
    segment = bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body
    assert np.array_equal(decode(plain[:2] + segment + plain[2:]), decode(plain))


def test_jpegs_keep_the_segment_that_says_how_colours_are_stored() -> None:
    """Without JFIF's header, components called R, G and B would not be YCbCr."""
    plain = encode("JPEG")
    for marker in (b"\xff\xc0", b"\xff\xda"):  # frame and scan, each with three components
        at = plain.index(marker) + (10 if marker == b"\xff\xc0" else 5)
        step = 3 if marker == b"\xff\xc0" else 2
        names = bytearray(plain)
        names[at : at + 3 * step : step] = b"RGB"
        plain = bytes(names)
    segment = b"\xff\xe0" + struct.pack(">H", 7) + b"JFIF\0"  # too short for Pillow
    damaged = plain[:20] + segment + plain[20:]
    with Image.open(BytesIO(plain)) as opened:
        assert np.array_equal(decode(plain), np.asarray(opened.convert("RGB")))
    assert np.array_equal(decode(damaged), decode(plain))


@pytest.mark.parametrize("end", range(2, 7))
def test_a_jpeg_that_ends_in_its_head_is_said_to_be_cut_off(end: int) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        decode(encode("JPEG")[:end])
    assert "index" not in str(caught.value)


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_damaged_pixels_are_refused_with_and_without_metadata(format: str) -> None:
    for options in ({}, {"exif": EXIF["garbage"][0]}):
        content = encode(format, **options)
        for cut in (content[: len(content) // 2], content[:4], content.replace(b"IDAT", b"IDAA")):
            if cut != content:
                with pytest.raises(ConfigError, match="a file: the image cannot be read"):
                    decode(cut)


def damage_metadata(draw: random.Random) -> Iterator[bytes]:
    """Yield images whose EXIF and XMP have random bytes, and entries of random types and counts."""
    while True:
        order = draw.choice("<>")
        kinds, counts = [*range(14), 99], [0, 1, 1, 2, 1000, 2**32 - 1]
        tags = [0x112, 0x112, 0x11A, 0x8769, 0x8825, draw.randrange(2**16)]
        entries = [
            (draw.choice(tags), draw.choice(kinds), draw.choice(counts), draw.randbytes(4))
            for _ in range(draw.randrange(5))
        ]
        exif = bytearray(b"Exif\0\0" + build_tiff(*entries, order=order) + draw.randbytes(9))
        for _ in range(draw.randrange(4)):
            exif[draw.randrange(len(exif))] = draw.randrange(256)
        exif = exif[: draw.randrange(len(exif) + 1)] if draw.random() < 0.2 else exif
        xmp = draw.choice([b"", draw.randbytes(20), b'tiff:Orientation="8"'])
        format = draw.choice(["JPEG", "PNG", "WEBP"])
        yield encode(format, exif=bytes(exif), **({} if format == "PNG" else {"xmp": xmp}))


def test_random_damage_of_metadata() -> None:
    images = damage_metadata(random.Random(0))
    for _, content in zip(range(400), images, strict=False):
        assert decode(content).shape in ((12, 20, 3), (20, 12, 3))


def test_warnings_of_pillow_are_silent(tmp_path: Path) -> None:
    """They do not name the file. A bomb of half the limit and EXIF warn in Pillow itself."""
    (tmp_path / "a.jpg").write_bytes(encode("JPEG", exif=EXIF["two values"][0]))
    (tmp_path / "b.jpg").write_bytes(encode("JPEG", exif=EXIF["maker note beyond the file"][0]))
    Image.new("1", (10_000, 9_000)).save(tmp_path / "c.png")
    code = (
        "import sys, pathlib; from trainables.data.decode import *\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    assert decode_picture(ImageSource(path), 8).shape[2] == 3\n"
    )
    command = [sys.executable, "-W", "always", "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stderr


def test_an_image_that_was_opened_stays_as_it_is() -> None:
    with Image.open(BytesIO(encode("PNG", exif=EXIF["rational"][0]))) as opened:
        opened.load()
        before = dict(opened.info), opened.size
        assert turn_upright(opened).size == (12, 20)
        assert (dict(opened.info), opened.size) == before
