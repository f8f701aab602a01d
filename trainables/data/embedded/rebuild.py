"""Render the embedded data sets anew from their sources.

    python -m trainables.data.embedded.rebuild emoji --source FOLDER      npm packages (.tgz)
    python -m trainables.data.embedded.rebuild typefaces --source FOLDER  TrueType, at any depth

Sources: for emoji `npm pack @iconify-json/noto@1.2.9` and so on (versions in ATTRIBUTION.md),
rendered by resvg (`pip install ablate[rebuild]`); for typefaces the Debian package
`fonts-aenigma` unpacked. Which drawings and which characters there are is read from the Arrow
file that ships; this renders them again.

emoji come out as they ship, to a few drawings' last bits. Typefaces come out alike but not the
same: the random sizes, offsets and rotations of the shipped file are not recorded. Any change of
pixels changes the fingerprint, and with it the identity of every trial on the set.

A set is one Arrow file, zstd-compressed, and its entry in the manifest: raw pixels under zstd take
14.7 MB for both sets where optimised PNGs took 20.5 MB, and decode in one call.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image, ImageDraw, ImageFont

from trainables.data.embedded.reader import HERE, content_sha256
from trainables.errors import ConfigError
from trainables.streams import derive

SIDE = 64
LEVEL = 19  # of zstd: seconds to write once; reading speed does not depend on it
SUPERSAMPLE = 4
GLYPH_SIDE = (32, 52)  # longer side of a glyph's box, pixels
ROTATION = 12.0  # degrees, either way
OFFSET = 4.0  # pixels, either way
FILES: dict[str, tuple[str, str]] = {
    "emoji": ("family", "CC-BY-SA-4.0"),
    "typefaces": (
        "character",
        "Brian Kent's Ænigma fonts: redistribution and modification with attribution and "
        "changes noted",
    ),
}


def rebuild(name: str, source: Path, out: Path = HERE) -> Path:
    """Render set `name` from `source` into `out`, and return the file written.

    Raises:
        ConfigError: `source` lacks a package, a drawing or a typeface.
    """
    with pa.ipc.open_file(str(HERE / f"{name}.arrow")) as shipped:
        batch = shipped.get_batch(0)
    detail, licence = FILES[name]
    classes, column = batch.column("class"), batch.column(detail)
    draw = emoji_drawings(source) if name == "emoji" else glyph_drawings(source)
    pixels = np.stack(
        [
            draw(label, kind)
            for label, kind in zip(classes.to_pylist(), column.to_pylist(), strict=True)
        ]
    )
    return write_embedded(
        name,
        pixels=pixels,
        labels=classes.indices.to_numpy(),
        classes=classes.dictionary.to_pylist(),
        detail=(detail, column.indices.to_numpy(), column.dictionary.to_pylist()),
        licence=licence,
        folder=out,
    )


def emoji_drawings(source: Path) -> Callable[[str, str], np.ndarray]:
    """(slug, family) → [64, 64, 3] uint8, on white."""
    try:
        resvg = import_module("resvg_py")
    except ImportError as error:
        raise ConfigError(
            "resvg-py", "not installed", "the renderer", "pip install 'ablate[rebuild]'"
        ) from error
    sets: dict[str, dict[str, Any]] = {}

    def icons(family: str) -> dict[str, Any]:
        if family not in sets:
            archives = sorted(source.glob(f"iconify-json-{family}-[0-9]*.tgz"))
            if not archives:
                raise ConfigError(
                    "--source",
                    f"no iconify-json-{family}-*.tgz in {source}",
                    "the npm package",
                    f"npm pack @iconify-json/{family}, at the version in ATTRIBUTION.md",
                )
            with tarfile.open(archives[0]) as archive:
                member = archive.extractfile("package/icons.json")
                if member is None:
                    raise ConfigError(str(archives[0]), "no icons.json", "an iconify-json package")
                sets[family] = json.load(member)
        return sets[family]

    def draw(slug: str, family: str) -> np.ndarray:
        known, name = icons(family), slug
        while name not in known["icons"]:
            if name not in known.get("aliases", {}):
                raise ConfigError("--source", f"no {slug} in {family}", "the version shipped")
            name = known["aliases"][name]["parent"]
        icon = known["icons"][name]  # its own view box wins over the family's
        left, top = icon.get("left", 0), icon.get("top", 0)
        width, height = (icon.get(side, known.get(side, 16)) for side in ("width", "height"))
        svg = (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'viewBox="{left} {top} {width} {height}" width="{width}" height="{height}">'
            f"{icon['body']}</svg>"
        )
        png = resvg.svg_to_bytes(svg_string=svg, width=SIDE, height=SIDE, skip_system_fonts=True)
        image = Image.open(io.BytesIO(bytes(png))).convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return np.asarray(Image.alpha_composite(white, image).convert("RGB"))

    return draw


def glyph_drawings(source: Path) -> Callable[[str, str], np.ndarray]:
    """(file name of a typeface, character) → [64, 64] uint8, black on white.

    The longer side of the glyph's box, its rotation and its offset are uniform, from a stream of
    the typeface's and the character's own.
    """
    files = {file.name: file for file in source.rglob("*.ttf")}

    def draw(typeface: str, character: str) -> np.ndarray:
        if typeface not in files:
            raise ConfigError(
                "--source", f"no {typeface} under {source}", "the unpacked fonts-aenigma package"
            )
        random = np.random.default_rng(derive(0, "rebuild", typeface, character))
        longest, angle = random.uniform(*GLYPH_SIDE), random.uniform(-ROTATION, ROTATION)
        shift = random.uniform(-OFFSET, OFFSET, 2) * SUPERSAMPLE
        side = SIDE * SUPERSAMPLE
        # The font is asked for at the size at which the glyph's box is as long as wanted.
        left, top, right, bottom = ImageFont.truetype(files[typeface], 200).getbbox(character)
        size = 200 * longest * SUPERSAMPLE / max(right - left, bottom - top, 1)
        font = ImageFont.truetype(files[typeface], size)
        left, top, right, bottom = font.getbbox(character)
        at = (
            (side - (left + right)) / 2 + shift[0],
            (side - (top + bottom)) / 2 + shift[1],
        )
        image = Image.new("L", (side, side), 255)
        ImageDraw.Draw(image).text(at, character, fill=0, font=font)
        image = image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=255)
        return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX))

    return draw


def write_embedded(
    name: str,
    *,
    pixels: np.ndarray,
    labels: np.ndarray,
    classes: list[str],
    detail: tuple[str, np.ndarray, list[str]],
    licence: str,
    folder: Path = HERE,
) -> Path:
    """Write `<folder>/<name>.arrow` and update `<folder>/manifest.json`.

    Args:
        pixels: [N, H, W] or [N, H, W, 3] uint8, class after class.
        labels: [N] into `classes`.
        detail: a further column: its name, [N] codes, and what the codes mean.
        licence: of the file as a whole, kept in its metadata.
    """
    n, height, width = pixels.shape[:3]
    channels = pixels.shape[3] if pixels.ndim == 4 else 1
    flat = np.ascontiguousarray(pixels, dtype=np.uint8).reshape(n, -1)
    image = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(flat.shape[1]), n, [None, pa.py_buffer(flat)]
    )
    column, codes, meanings = detail
    batch = pa.record_batch(
        {
            "image": image,
            "class": pa.DictionaryArray.from_arrays(labels.astype(np.int32), pa.array(classes)),
            column: pa.DictionaryArray.from_arrays(codes.astype(np.int8), pa.array(meanings)),
        }
    )
    shape = {"height": height, "width": width, "channels": channels, "licence": licence}
    batch = batch.replace_schema_metadata({key: str(value) for key, value in shape.items()})
    path = folder / f"{name}.arrow"
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", LEVEL))
    with pa.ipc.new_file(str(path), batch.schema, options=options) as writer:
        writer.write_batch(batch)

    manifest = folder / "manifest.json"
    entries = json.loads(manifest.read_text()) if manifest.exists() else {}
    entries[name] = {
        "file_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "content_sha256": content_sha256(flat, labels, classes),
        "images": n,
        "classes": len(classes),
    }
    manifest.write_text(json.dumps(entries, indent=2, sort_keys=True) + "\n")
    return path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainables.data.embedded.rebuild",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=sorted(FILES))
    parser.add_argument("--source", type=Path, required=True, help="folder of the sources")
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        written = rebuild(options.name, options.source, options.out)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{written}: {written.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
