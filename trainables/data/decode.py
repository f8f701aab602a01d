"""Image files to uint8 RGB, in threads.

Deviations from torchvision's ImageFolder pipeline: the EXIF orientation is applied, transparent
pixels become white (not whatever colour lies under them), 16-bit greys keep their upper byte unless
`data.grey_range` is given. Damaged metadata change no pixel (`data/metadata.py`). Resizing is
Pillow's antialiased bilinear, as torchvision's Resize of a Pillow image.

Files are input from outside. Their content must be of one of `FORMATS`: Pillow knows many more,
among them EPS, for which it starts Ghostscript. Pillow refuses an image of more than 179 million
pixels (2 · `Image.MAX_IMAGE_PIXELS`) before it decodes any of them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image

from trainables.data.greys import (
    DeepValues,
    Range,
    has_deep_colours,
    is_deep_grey,
    measure_deep_colours,
    reduce_depth,
)
from trainables.data.metadata import drop_metadata, turn_upright
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
T = TypeVar("T")


class Picture(NamedTuple):
    """An image file.

    path: the file, or with `content` what to call it. content: its bytes, where they do not lie in
    a file. box: the part that is kept, before it is resized.
    """

    path: Path
    content: bytes | None = None
    box: Box | None = None


def map_ahead(work: Callable[[Picture], T], pictures: Iterable[Picture]) -> Iterator[T]:
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
    picture: Picture, short: int | None, grey_range: Range | None = None
) -> np.ndarray:
    """Decode a picture to [H, W, 3] uint8 RGB, resized to the short side `short` unless it is None.

    Refuse a file that is damaged or too large, or has none of the known formats.
    """
    return decode_with_values(picture, short, grey_range)[0]


def decode_with_values(
    picture: Picture, short: int | None, grey_range: Range | None = None
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
