"""A gallery of pictures and their nearest: plain files, which any browser opens where they lie.

index.html, page-002.html, …    QUERIES a page
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


def write(to: Path, root: Path, queries: Sequence[Query], title: str) -> int:
    """Write it, over one that is there; returns the number of pages.

    Raises:
        OSError: it cannot be written.
        ConfigError: a picture that could be read can be read no more.
    """
    if is_gallery(to):
        shutil.rmtree(to / THUMBS)
        for left in (*to.glob("page-*.html"), to / INDEX):
            left.unlink()
    (to / THUMBS).mkdir(parents=True)
    shown = dict.fromkeys(path for query in queries for path in (query.path, *query.near))
    thumbs = {path: f"{THUMBS}/{number:07d}.jpg" for number, path in enumerate(shown, 1)}
    small = ahead(_thumbnail, (Picture(root / path) for path in thumbs))
    for name, picture in zip(thumbs.values(), small, strict=True):
        picture.save(to / name, "JPEG", quality=82)
    pages = [queries[start : start + PER_PAGE] for start in range(0, len(queries), PER_PAGE)]
    names = [INDEX if number == 1 else f"page-{number:03d}.html" for number in _numbers(pages)]
    classes = queries[0].same[0] is not None
    template = _template()
    for number, (name, page) in enumerate(zip(names, pages, strict=True), 1):
        text = template.render(
            title=title,
            queries=page,
            thumbs=thumbs,
            names=names,
            number=number,
            first=(number - 1) * PER_PAGE + 1,
            count=len(queries),
            hits=sum(query.hit for query in queries) if classes else None,
        )
        (to / name).write_text(text, encoding="utf-8")
    return len(pages)


def is_gallery(folder: Path) -> bool:
    """Whether all in it is of a gallery, so that another one may take its place."""
    if not (folder / INDEX).is_file() or MARK not in (folder / INDEX).read_text(errors="replace"):
        return False
    ours = {folder / INDEX, folder / THUMBS, *folder.glob("page-*.html")}
    return set(folder.iterdir()) <= ours


def _numbers(pages: Sequence[object]) -> range:
    return range(1, len(pages) + 1)


def _thumbnail(picture: Picture) -> Image.Image:
    small = Image.fromarray(picture_pixels(picture, None))
    small.thumbnail((SIDE, SIDE))
    return small


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["printable"] = lambda path: printable(str(path))
    return environment.get_template("gallery.html.j2")
