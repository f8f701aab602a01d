"""Find the nearest neighbours of pictures in a folder, and show them on a web page.

index.html             a row for each query
thumbs/0000001.jpg, …  each picture of the page once; a browser loads those in view
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jinja2
import numpy as np
import torch
from PIL import Image

from trainables.data.decode import ImageSource, Range, decode_picture, map_ahead
from trainables.words.texts import escape_control_characters

if TYPE_CHECKING:
    from trainables.core.trained_model import EmbeddedFolder, Model

INDEX, THUMBS = "index.html", "thumbs"
SIDE = 144  # of a thumbnail's box, in pixels
MAX_QUERIES = 500  # on the page
QUERIES, REFERENCES = 64, 4096  # compared at once
PARTS = {"train", "val", "test"}  # folders that are no classes


class Neighbour(NamedTuple):
    """A neighbour of a query; a larger score is closer. `same_class` is None without classes."""

    path: Path
    score: float
    same_class: bool | None


class Query(NamedTuple):
    """A picture and its nearest neighbours, the nearest first."""

    path: Path
    neighbours: list[Neighbour]


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


def find_neighbours(model: "Model", folder: "EmbeddedFolder", n_neighbours: int) -> list[Query]:
    """Return at most MAX_QUERIES pictures, evenly spaced, with their nearest neighbours.

    Pictures are compared as in the trial's evaluation.
    """
    embeddings, paths, classes = folder.embeddings, folder.paths, find_class_names(folder.paths)
    count = min(n_neighbours, len(paths) - 1)
    evenly_spaced = np.linspace(0, len(paths) - 1, min(MAX_QUERIES, len(paths))).round().astype(int)
    queries = []
    # rows and columns: positions of queries and of their neighbours in the folder
    for rows in torch.split(torch.from_numpy(np.unique(evenly_spaced)), QUERIES):
        blocks = torch.split(embeddings, REFERENCES)
        scores = torch.cat([model.score(embeddings[rows], block) for block in blocks], 1)
        values, columns = scores.topk(count + 1)
        for row, row_values, row_columns in zip(rows.tolist(), values, columns, strict=True):
            # leave out the query itself, which may be missing if other pictures are equal to it
            pairs = zip(row_values.tolist(), row_columns.tolist(), strict=True)
            other_pairs = [(value, column) for value, column in pairs if column != row]
            neighbours = []
            for value, column in other_pairs[:count]:
                same_class = None if classes is None else classes[column] == classes[row]
                neighbours.append(Neighbour(paths[column], value, same_class))
            queries.append(Query(paths[row], neighbours))
    return queries


def count_hits(queries: Sequence[Query]) -> int | None:
    """Return for how many queries the nearest neighbour has their class; None without classes."""
    same_class = [query.neighbours[0].same_class for query in queries]
    return None if same_class[0] is None else sum(map(bool, same_class))


def write_gallery(
    to: Path, root: Path, queries: Sequence[Query], grey_range: Range | None = None
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
    shown = [path for q in queries for path in (q.path, *(n.path for n in q.neighbours))]
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
