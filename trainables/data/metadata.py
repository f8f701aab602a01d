"""Read images whose metadata are damaged: pixels are never refused for EXIF, XMP or a profile.

The orientation is that of EXIF, else of XMP, as Pillow reads them. An orientation that cannot be
read is none. Pillow's own `exif_transpose` also rewrites the tags, which fails for more files.
"""

import struct
import warnings
import zlib

from PIL import ExifTags, Image

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
