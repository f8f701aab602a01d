"""A gallery of pictures and their nearest: plain files, which any browser opens where they lie.

index.html             a row for each query
thumbs/0000001.jpg, …  of each picture that is shown, once; a browser loads those in view
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
from PIL import Image

from ablate.cli.pictures import Query
from trainables.data.decode import Picture, decode_picture, map_ahead
from trainables.machine.texts import escape_control_characters

INDEX, THUMBS = "index.html", "thumbs"
SIDE = 144  # of a thumbnail's box, in pixels


def write_gallery(to: Path, root: Path, queries: Sequence[Query], title: str) -> None:
    """Write a gallery in a new folder.

    Raises:
        OSError: it cannot be written.
        ConfigError: a picture that could be read can be read no more.
    """

    def shrink(picture: Picture) -> Image.Image:
        small = Image.fromarray(decode_picture(picture, None))
        small.thumbnail((SIDE, SIDE))
        return small

    (to / THUMBS).mkdir(parents=True)
    pictures = dict.fromkeys(path for query in queries for path in (query.path, *query.near))
    thumbs = {path: f"{THUMBS}/{number:07d}.jpg" for number, path in enumerate(pictures, 1)}
    small = map_ahead(shrink, (Picture(root / path) for path in thumbs))
    for name, thumb in zip(thumbs.values(), small, strict=True):
        thumb.save(to / name, "JPEG", quality=82)
    template = jinja2.Template(
        Path(__file__).with_suffix(".html.j2").read_text(),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    has_classes = queries[0].same[0] is not None
    text = template.render(
        title=escape_control_characters(title),
        printable=lambda path: escape_control_characters(str(path)),
        queries=queries,
        thumbs=thumbs,
        hits=sum(query.hit for query in queries) if has_classes else None,
    )
    (to / INDEX).write_text(text, encoding="utf-8")
