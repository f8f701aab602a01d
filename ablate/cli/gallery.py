"""A gallery of pictures and their nearest: plain files, which any browser opens where they lie.

index.html, page-002.html, …    PER_PAGE queries each
thumbs/0000001.jpg, …           of each picture that is shown, once
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from PIL import Image

from trainables.data.files.first_pass import Picture, ahead, picture_pixels
from trainables.machine.texts import printable

INDEX, THUMBS = "index.html", "thumbs"
MARK = 'content="ablate neighbours"'
PER_PAGE = 50
SIDE = 144  # of a thumbnail's box, in pixels


@dataclass(frozen=True)
class Query:
    """A picture and the others that are nearest to it.

    scores: of each, larger is closer. same: whether each is of its class; None: there are none.
    """

    path: Path
    near: list[Path]
    scores: list[float]
    same: list[bool | None]

    @property
    def hit(self) -> bool:
        """Whether the nearest is of its class."""
        return bool(self.same[0])


def write_gallery(to: Path, root: Path, queries: Sequence[Query], title: str) -> int:
    """Write a gallery, over one that is there, and return the number of pages.

    Raises:
        OSError: it cannot be written.
        ConfigError: a picture that could be read can be read no more.
    """

    def shrink(picture: Picture) -> Image.Image:
        small = Image.fromarray(picture_pixels(picture, None))
        small.thumbnail((SIDE, SIDE))
        return small

    if is_gallery(to):
        shutil.rmtree(to / THUMBS)
        for old in (*to.glob("page-*.html"), to / INDEX):
            old.unlink()
    (to / THUMBS).mkdir(parents=True)
    pictures = dict.fromkeys(path for query in queries for path in (query.path, *query.near))
    thumbs = {path: f"{THUMBS}/{number:07d}.jpg" for number, path in enumerate(pictures, 1)}
    small = ahead(shrink, (Picture(root / path) for path in thumbs))
    for name, thumb in zip(thumbs.values(), small, strict=True):
        thumb.save(to / name, "JPEG", quality=82)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["printable"] = lambda path: printable(str(path))
    template = environment.get_template("gallery.html.j2")
    has_classes = queries[0].same[0] is not None
    starts = range(0, len(queries), PER_PAGE)
    names = [INDEX, *(f"page-{number:03d}.html" for number in range(2, len(starts) + 1))]
    for number, (name, start) in enumerate(zip(names, starts, strict=True), 1):
        text = template.render(
            title=title,
            queries=queries[start : start + PER_PAGE],
            thumbs=thumbs,
            names=names,
            number=number,
            first=start + 1,
            count=len(queries),
            hits=sum(query.hit for query in queries) if has_classes else None,
        )
        (to / name).write_text(text, encoding="utf-8")
    return len(starts)


def is_gallery(folder: Path) -> bool:
    """Return whether all in it is of a gallery, so that another one may take its place."""
    if not (folder / INDEX).is_file() or MARK not in (folder / INDEX).read_text(errors="replace"):
        return False
    own = {folder / INDEX, folder / THUMBS, *folder.glob("page-*.html")}
    return set(folder.iterdir()) <= own
