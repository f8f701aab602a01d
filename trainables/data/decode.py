"""Image files to uint8 RGB, in threads: damaged metadata, deep greys and transparency included.

Deviations from torchvision's ImageFolder pipeline: the EXIF orientation is applied, transparent
pixels become white (not whatever colour lies under them), 16-bit greys keep their upper byte unless
`data.grey_range` is given. Resizing is Pillow's antialiased bilinear, as torchvision's Resize of a
Pillow image.

Files are input from outside. Their content must be of one of `FORMATS`: Pillow knows many more,
among them EPS, for which it starts Ghostscript. Pillow refuses an image of more than 179 million
pixels (2 · `Image.MAX_IMAGE_PIXELS`) before it decodes any of them.

Damaged metadata change no pixel: EXIF, XMP or a profile never refuse an image. The orientation is
that of EXIF, else of XMP, as Pillow reads them. An orientation that cannot be read is none.
Pillow's own `exif_transpose` also rewrites the tags, which fails for more files.

Without `data.grey_range`, greys of 16 and 32 bits are read as 0 … 65535, and floats as 0 … 255.
`survey.py` refuses data sets whose values fill a small part of that range.
"""

import struct
import warnings
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import ExifTags, Image

from trainables.machine.processes import count_cores
from trainables.words.errors import ConfigError

# Formats of still images, by content, whatever the name; JPEG's plugin opens multi-picture files
# (MPO) of cameras, too. TGA has no signature, so it is tried last. Left out are drawings that a
# program has to run or draw (EPS, WMF), films (FLI, MPEG), measurements (FITS, HDF5, GRIB, BUFR),
# text about images (IPTC), Photo CD (PCD), whose ending is now that of point clouds, and IM, which
# Pillow will drop. A version of Pillow may lack some.
STILL_IMAGES = (
    *("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "AVIF", "JPEG2000", "PPM", "QOI", "ICO"),
    *("ICNS", "CUR", "DIB", "PCX", "DCX", "SGI", "SUN", "XBM", "XPM", "PSD", "DDS", "BLP"),
    *("FTEX", "GBR", "MSP", "PIXAR", "TGA"),
)
Image.init()  # fills the list of formats that Pillow opens
FORMATS = tuple(name for name in STILL_IMAGES if name in Image.OPEN)
IN_FLIGHT = 4  # images a core: bounds memory, 36 MB each of a camera, while the threads stay busy
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
Range = tuple[float, float]  # the values of black and white
INTEGERS, FLOATS, COLOURS = "greys of 16 or 32 bits", "float greys", "colours of 16 bits"
WHITES = {INTEGERS: 65535, FLOATS: 255, COLOURS: 65535}  # what is read as white
T = TypeVar("T")

# What Pillow raises for EXIF and XMP that it cannot parse. 200,000 damaged files raised the first
# three; Pillow itself expects most of the others where it reads a resolution from EXIF.
UNREADABLE = (
    *(SyntaxError, ValueError, struct.error),
    *(TypeError, LookupError, ArithmeticError, OSError),
)
TRANSPOSITIONS = {  # by orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
XMP_KEYS = ("XML:com.adobe.xmp", "xmp")  # of an image's `info`
PNG_SIGNATURE, PNG_ORIENTATION, PNG_TRANSPARENCY = b"\x89PNG\r\n\x1a\n", b"eXIf", b"tRNS"
JPEG_START, JPEG_SCAN, JPEG_COMMENT = b"\xff\xd8", 0xDA, 0xFE
JPEG_APPLICATION = range(0xE0, 0xF0)  # markers of segments with metadata
JPEG_EXIF = 0xE1
JPEG_COLOURS = (0xE0, 0xEE)  # JFIF's and Adobe's, which say how colours are stored

# Pillow's warnings of damaged metadata and large images do not name the file, and Python cannot
# filter the warnings of one thread.
warnings.filterwarnings("ignore", module=r"PIL\.")


class DeepValues(NamedTuple):
    """The kind of an image of more than 8 bits, and its least and largest value."""

    kind: str
    least: float
    most: float


class ImageSource(NamedTuple):
    """An image file.

    path: the file, or with `content` what to call it. content: its bytes, where they do not lie in
    a file. box: the part that is kept, before it is resized.
    """

    path: Path
    content: bytes | None = None
    box: Box | None = None


def map_ahead(work: Callable[[ImageSource], T], pictures: Iterable[ImageSource]) -> Iterator[T]:
    """Yield `work(picture)` for each picture in order; threads compute a bounded number ahead."""
    threads = count_cores()
    with ThreadPoolExecutor(threads) as pool:
        remaining = iter(pictures)
        first_pictures = islice(remaining, IN_FLIGHT * threads)
        futures = deque(pool.submit(work, picture) for picture in first_pictures)
        try:
            while futures:
                yield futures.popleft().result()
                futures.extend(pool.submit(work, picture) for picture in islice(remaining, 1))
        finally:
            for future in futures:
                future.cancel()


def decode_picture(
    picture: ImageSource, short: int | None, grey_range: Range | None = None
) -> np.ndarray:
    """Decode a picture to [H, W, 3] uint8 RGB, resized to the short side `short` unless it is None.

    Refuse a file that is damaged or too large, or has none of the known formats.
    """
    return decode_with_values(picture, short, grey_range)[0]


def decode_with_values(
    picture: ImageSource, short: int | None, grey_range: Range | None = None
) -> tuple[np.ndarray, DeepValues | None]:
    """Decode as `decode_picture`; return the values of an image of more than 8 bits, too."""
    path, content, box = picture

    def open_and_convert(source: Path | BytesIO) -> tuple[np.ndarray, DeepValues | None]:
        with Image.open(source, formats=FORMATS) as opened:
            return convert_image(opened, short, grey_range, box, str(path))

    with explain_unreadable(str(path)):
        try:
            return open_and_convert(path if content is None else BytesIO(content))
        except (MemoryError, ConfigError):
            raise
        except Exception:
            # metadata may be the reason; without any, the first error is that of the pixels
            whole = path.read_bytes() if content is None else content
            if len(bare := drop_metadata(whole)) == len(whole):
                raise
            return open_and_convert(BytesIO(bare))


@contextmanager
def explain_unreadable(where: str) -> Iterator[None]:
    """Turn Pillow's errors on an image into a ConfigError that names the image."""
    try:
        yield
    except (MemoryError, ConfigError):
        raise  # the machine has no memory left, or the box is at fault
    except Exception as error:
        # Pillow's plugins raise errors of many types: OSError, SyntaxError, struct.error…
        unknown = isinstance(error, Image.UnidentifiedImageError)  # type: ignore[attr-defined]
        reason = "it has none of the known formats" if unknown else error
        raise ConfigError(
            where,
            f"the image cannot be read ({reason})",
            "Replace or remove the file; `ablate data check` lists all such files",
        ) from error


def convert_image(
    image: Image.Image,
    short: int | None,
    grey_range: Range | None = None,
    box: Box | None = None,
    where: str = "",
) -> tuple[np.ndarray, DeepValues | None]:
    """Return an opened image as `decode_with_values` does; `where` names it if the box is wrong."""
    has_colours = has_deep_colours(image)
    image.load()
    values = measure_deep_colours(image) if has_colours else None
    image = turn_upright(image)
    if is_deep_grey(image):
        image, values = reduce_depth(image, grey_range)
    image = convert_to_rgb(image)
    image = image if box is None else _crop_box(image, box, where)
    return np.asarray(image if short is None else resize_to_short_side(image, short)), values


def resize_to_short_side(image: Image.Image, short: int) -> Image.Image:
    size = compute_short_size(image.size, short)
    return image if size == image.size else image.resize(size, Image.Resampling.BILINEAR)


def compute_short_size(size: tuple[int, int], short: int) -> tuple[int, int]:
    """Return width and height with a short side of `short`; the long one is rounded down."""
    width, height = size
    scale = short / min(width, height)
    return (short, int(height * scale)) if width <= height else (int(width * scale), short)


def _crop_box(image: Image.Image, box: Box, where: str) -> Image.Image:
    """Cut the image to the box, with edges rounded to pixels; refuse a box outside the image."""
    x0, y0, x1, y1 = (round(edge) for edge in box)
    visible = max(x0, 0), max(y0, 0), min(x1, image.width), min(y1, image.height)
    if visible[0] >= visible[2] or visible[1] >= visible[3]:
        raise ConfigError(
            where,
            f"the box from ({x0}, {y0}) to ({x1}, {y1}) is outside of the image of {image.width} × "
            f"{image.height} pixels",
            "Unpack the data set again, or use no box",
        )
    return image.crop(visible)


def convert_to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of 8 bits to RGB; transparent pixels become white."""
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def turn_upright(image: Image.Image) -> Image.Image:
    """Return a loaded image transposed as its EXIF or XMP says; `image` stays as it is."""
    transposition = _find_transposition(image)
    return image if transposition is None else image.transpose(transposition)


def _find_transposition(image: Image.Image) -> Image.Transpose | None:
    """Return what the orientation in EXIF asks for, or that in XMP if EXIF cannot be read."""
    only_xmp = Image.new("1", (1, 1))
    only_xmp.info = {key: image.info[key] for key in XMP_KEYS if key in image.info}
    for source in (image, only_xmp):
        try:
            return TRANSPOSITIONS.get(source.getexif().get(ExifTags.Base.Orientation, 1))
        except UNREADABLE:
            continue
    return None


def drop_metadata(content: bytes) -> bytes:
    """Return a PNG or JPEG file without the parts that hold neither pixels nor an orientation.

    Pillow refuses some files for these parts: texts of more than 1 MiB, short or damaged chunks. A
    file of another format is returned as it is.
    """
    if content.startswith(PNG_SIGNATURE):
        return b"".join([PNG_SIGNATURE, *_list_png_chunks(content)])
    if content.startswith(JPEG_START):
        return b"".join([JPEG_START, *_list_jpeg_segments(content)])
    return content


def _list_png_chunks(content: bytes) -> list[bytes]:
    chunks, start = list[bytes](), len(PNG_SIGNATURE)
    while start < len(content):
        length, kind = int.from_bytes(content[start : start + 4]), content[start + 4 : start + 8]
        chunk = content[start : start + length + 12]  # with length, kind and checksum
        is_critical = kind[:1].isupper() or kind == PNG_TRANSPARENCY
        is_intact = zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:])
        if is_critical or (kind == PNG_ORIENTATION and is_intact):
            chunks.append(chunk)
        start += length + 12
    return chunks


def _list_jpeg_segments(content: bytes) -> list[bytes]:
    segments, start = list[bytes](), len(JPEG_START)
    while content[start : start + 1] == b"\xff" and start + 4 <= len(content):
        if (marker := content[start + 1]) == JPEG_SCAN:
            break
        end = start + 2 + int.from_bytes(content[start + 2 : start + 4])
        is_metadata = marker in JPEG_APPLICATION or marker == JPEG_COMMENT
        has_colours = marker in JPEG_COLOURS and end - start >= 16
        if not is_metadata or marker == JPEG_EXIF or has_colours:
            segments.append(content[start:end])
        start = end
    return [*segments, content[start:]]


def reduce_depth(image: Image.Image, grey_range: Range | None) -> tuple[Image.Image, DeepValues]:
    """Convert a grey image of 16 or 32 bits or of floats to 8 bits, and return its values too."""
    pixels = np.asarray(image)
    kind = FLOATS if image.mode == "F" else INTEGERS
    if kind == FLOATS and not np.isfinite(pixels).all():
        raise ValueError("it has NaN or infinite values")
    values = DeepValues(kind, float(pixels.min()), float(pixels.max()))
    if grey_range is not None:
        black, white = grey_range
        shares = (pixels.astype(np.float64) - black) / (white - black)
        reduced = np.rint(255 * shares.clip(0, 1))
    elif kind == INTEGERS:
        reduced = np.clip(pixels >> 8, 0, 255)
    else:
        reduced = np.clip(pixels, 0, 255)
    return Image.fromarray(reduced.astype(np.uint8)), values


def is_deep_grey(image: Image.Image) -> bool:
    """Return whether an image has one channel of more than 8 bits."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def measure_deep_colours(image: Image.Image) -> DeepValues:
    """Return the values of a loaded image of 16 bits, of which Pillow keeps the upper byte."""
    pixels = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    return DeepValues(COLOURS, 256.0 * pixels.min(), 256.0 * pixels.max() + 255)


def has_deep_colours(image: Image.Image) -> bool:
    """Return whether Pillow will read 16 bits as 8; `image` was opened and not loaded yet."""
    tiles = () if is_deep_grey(image) else getattr(image, "tile", ())
    for codec, *_, options in tiles:
        white = options[-1] if codec.startswith("ppm") else 0  # that a PPM file states
        if codec == "SGI16" or white > 255 or ";16" in str(options):
            return True
    return False
