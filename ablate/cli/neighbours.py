"""`ablate neighbours`: pictures of a folder beside those that a model finds nearest, as pages."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ablate.cli.faiss_index import make_index
from ablate.cli.gallery import INDEX, Query, is_gallery, write
from ablate.cli.pictures import Unread, class_names, embedded, listed, model_of
from ablate.values.terminal import progress_shown, say
from trainables.errors import ConfigError
from trainables.machine.texts import user_path

if TYPE_CHECKING:
    from trainables.core.export import Model

QUERIES, REFERENCES = 64, 4096  # compared at once


@dataclass(frozen=True)
class Embedded:
    """What could be read of a folder. embeddings: [N, E]. classes: [N], or None."""

    root: Path
    paths: list[Path]
    embeddings: Tensor
    classes: list[str] | None


def neighbours(args: argparse.Namespace) -> int:
    """0: a gallery of all pictures. 1: some could not be read."""
    to = user_path(args.to, "--to")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        if not to.is_dir() or not is_gallery(to):
            raise ConfigError("--to", f"{to}, which is there", "a new folder", "Name another one")
        if not args.replace:
            raise ConfigError("--to", f"{to}, a gallery", "a new folder", "Or give --replace")
    root, paths = listed(args.folder)
    model = model_of(args.model, args.device)
    unread = Unread()
    with progress_shown():
        found = _read(model, root, paths, unread)
    if len(found.paths) < 2:
        raise ConfigError("FOLDER", f"{len(found.paths)} pictures that can be read", "at least 2")
    chosen = _spread(len(found.paths), args.queries)
    queries = list(_queries(model, found, chosen, args.nearest))
    try:
        pages = write(to, found.root, queries, title=f"Nearest pictures: {root.resolve().name}")
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(
            "--to", f"{to}, which cannot be written ({why})", "a writable folder"
        ) from error
    say(f"{len(queries)} of {len(found.paths)} pictures with their nearest on {pages} pages")
    if found.classes is not None:
        hits = sum(query.hit for query in queries)
        say(f"the nearest is of the same class for {hits} of these {len(queries)}")
    say(f"open {to / INDEX}")
    if unread.count:
        say(f"{unread.count} could not be read, and are left out", error=True)
    return 1 if unread.count else 0


def _read(model: Model, root: Path, paths: Sequence[Path], unread: Unread) -> Embedded:
    rows: list[int] = []
    blocks = []
    for some, block in embedded(model, root, paths, unread):
        rows += some
        blocks.append(block)
    if not blocks:
        raise unread.all_of(root)
    kept = [paths[row] for row in rows]
    return Embedded(root, kept, torch.cat(blocks), class_names(kept))


def _spread(count: int, most: int) -> list[int]:
    """So many rows at most, evenly spaced, in order."""
    places = np.linspace(0, count - 1, min(most, count)).round().astype(int)
    return list(dict.fromkeys(places.tolist()))


def _queries(model: Model, found: Embedded, chosen: Sequence[int], nearest: int) -> Iterator[Query]:
    """Each with its nearest others by the score that the trial was evaluated with."""
    count = min(nearest, len(found.paths) - 1)
    for row, scores, near in _nearest(model, found.embeddings, chosen, count):
        own = None if found.classes is None else found.classes[row]
        same = [None if found.classes is None else found.classes[other] == own for other in near]
        yield Query(found.paths[row], [found.paths[n] for n in near], scores, same)


def _nearest(
    model: Model, embeddings: Tensor, chosen: Sequence[int], count: int
) -> Iterator[tuple[int, list[float], list[int]]]:
    """Each chosen row, and score and row of its nearest `count` others, nearest first.

    faiss searches where the model's score is one of its own; else all pairs are scored here.
    """
    index = make_index(model, embeddings.shape[1])
    if index is not None:
        index.add(embeddings)
    for start in range(0, len(chosen), QUERIES):
        rows = torch.tensor(chosen[start : start + QUERIES])
        if index is not None:
            values, places = index.search(embeddings[rows], count + 1)
        else:
            parts = [
                model.score(embeddings[rows], references)
                for references in torch.split(embeddings, REFERENCES)
            ]
            values, places = torch.cat(parts, 1).topk(count + 1)
        for row, scores, near in zip(rows.tolist(), values.tolist(), places.tolist(), strict=True):
            # Not itself; among copies of it, which are as near, it need not be found.
            others = [pair for pair in zip(scores, near, strict=True) if pair[1] != row][:count]
            yield row, [score for score, _ in others], [other for _, other in others]
