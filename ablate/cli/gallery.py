"""Find the nearest neighbours of pictures in a folder, and show them on a web page.

index.html             a row for each query
thumbs/0000001.jpg, …  each picture of the page once; a browser loads those in view
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
import torch
from PIL import Image

from trainables.core.pictures import list_nearest
from trainables.data.decode import ImageSource, Range, decode_picture, map_ahead
from trainables.words.texts import escape_control_characters

if TYPE_CHECKING:
    from trainables.core.trained_model import EmbeddedFolder, Model

INDEX, THUMBS = "index.html", "thumbs"
SIDE = 144  # of a thumbnail's box, in pixels
MAX_QUERIES = 500  # on the page
QUERIES, REFERENCES = 64, 4096  # compared at once
PARTS = {"train", "val", "test"}  # folders that are no classes


def find_class_names(paths: Sequence[Path]) -> list[str] | None:
    """Return the name of each picture's class folder; None unless there are two classes or more.

    Class folders are the top ones, or those in `train/`, `test/`, `val/` if all pictures lie there.
    """
    has_parts = {path.parts[0] for path in paths} <= PARTS and all(len(p.parts) > 2 for p in paths)
    depth = 1 if has_parts else 0
    if any(len(path.parts) <= depth + 1 for path in paths):  # a picture is in no class folder
        return None
    names = [path.parts[depth] for path in paths]
    return names if len(set(names)) > 1 else None


def find_neighbours(
    model: "Model", folder: "EmbeddedFolder", n_neighbours: int
) -> list[dict[str, Any]]:
    """Return at most MAX_QUERIES pictures, evenly spaced, with their nearest neighbours.

    Each has the path `query`, and `near`: the nearest pictures, the nearest first, with `picture`
    (a path), `score` (larger is closer), and `hit`, whether its class is the query's; None without
    classes. Pictures are compared as in the trial's evaluation.
    """
    embeddings, paths, classes = folder.embeddings, folder.paths, find_class_names(folder.paths)
    evenly_spaced = np.linspace(0, len(paths) - 1, min(MAX_QUERIES, len(paths))).round().astype(int)
    queries = []
    for rows in torch.split(torch.from_numpy(np.unique(evenly_spaced)), QUERIES):
        blocks = torch.split(embeddings, REFERENCES)
        scores = torch.cat([model.score(embeddings[rows], block) for block in blocks], 1)
        scores.scatter_(1, rows[:, None], -torch.inf)  # a picture is no neighbour of itself
        for row, row_scores in zip(rows.tolist(), scores, strict=True):
            near = [
                {
                    "picture": paths[n],
                    "score": score,
                    "hit": None if classes is None else classes[n] == classes[row],
                }
                for n, score in list_nearest(row_scores, n_neighbours)
            ]
            queries.append({"query": paths[row], "near": near})
    return queries


def count_hits(queries: Sequence[Mapping[str, Any]]) -> int | None:
    """Return for how many queries the nearest neighbour has their class; None without classes."""
    hits = [query["near"][0]["hit"] for query in queries]
    return None if hits[0] is None else sum(hits)


def write_gallery(
    to: Path, root: Path, queries: Sequence[Mapping[str, Any]], grey_range: Range | None = None
) -> None:
    """Write the web page of queries and its thumbnails to a new folder.

    Greys of more than 8 bits are shown as the model sees them, by `data.grey_range`.
    """

    def make_thumbnail(picture: ImageSource) -> Image.Image:
        image = Image.fromarray(decode_picture(picture, None, grey_range))
        image.thumbnail((SIDE, SIDE))
        return image

    # write a thumbnail of each query and neighbour, each picture once
    (to / THUMBS).mkdir(parents=True)
    shown = [path for q in queries for path in (q["query"], *(n["picture"] for n in q["near"]))]
    numbered = enumerate(dict.fromkeys(shown), 1)
    thumbs = {path: f"{THUMBS}/{number:07d}.jpg" for number, path in numbered}
    images = map_ahead(make_thumbnail, (ImageSource(root / path) for path in thumbs))
    for name, image in zip(thumbs.values(), images, strict=True):
        image.save(to / name, "JPEG", quality=82)
    # write the page
    template = jinja2.Template(
        Path(__file__).with_suffix(".html.j2").read_text(),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    text = template.render(
        title=escape_control_characters(f"Nearest pictures: {root.resolve().name}"),
        printable=lambda path: escape_control_characters(str(path)),
        queries=queries,
        thumbs=thumbs,
        hits=count_hits(queries),
    )
    (to / INDEX).write_text(text, encoding="utf-8")
