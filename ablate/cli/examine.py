"""What is there of each data set, and whether all of it can be used.

A look (`summary`) reads lists and names; an examination (`examined`) reads and decodes every image
once, and goes on where one is bad.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Dataset, fingerprint, load_dataset
from trainables.data.embedded.reader import Embedded
from trainables.data.files.about import About, Count
from trainables.data.files.archive import Archive
from trainables.data.files.counts import differences
from trainables.data.files.fileset import FileSet
from trainables.data.files.index import Index
from trainables.data.files.sheet import SIDE, chosen
from trainables.data.files.store.picture import Picture, ahead, picture_pixels
from trainables.errors import ConfigError


@dataclass(frozen=True)
class Summary:
    """root: where it lies; None: in the package. problems: what is not as its makers say."""

    root: Path | None
    counts: dict[str, Count]
    problems: tuple[str, ...] = ()


@dataclass
class Examination:
    """pictures: for a contact sheet, with their classes. bad: path and reason of each image that
    cannot be used. dataset: its rows; without pixels where these are in files."""

    summary: Summary
    fingerprint: str
    dataset: Dataset
    images: int
    pictures: list[tuple[np.ndarray, str]] = field(default_factory=list)
    bad: list[tuple[str, str]] = field(default_factory=list)


def summary(config: DataConfig) -> Summary | None:
    """A look at the configured data set, without decoding; None where only loading it tells.

    Raises:
        ConfigError: it is not there, or its lists cannot be read.
    """
    source = DATASETS[config.name]
    if issubclass(source, Embedded):
        entry = source.entry()
        return Summary(None, {"all": Count(entry["classes"], entry["images"])})
    if issubclass(source, Archive):
        root, counts = source.counts(config)
        return Summary(root, counts, _different(counts, source.ABOUT))
    if issubclass(source, FileSet):
        return _of_files(source, config)[0]
    return None


def _of_files(source: type[FileSet], config: DataConfig) -> tuple[Summary, Index]:
    reading = source.reading(config)
    problems = list(reading.different)
    if reading.absent:
        some = ", ".join(reading.absent[:3])
        problems.insert(0, f"{len(reading.absent):,} of {reading.listed:,} images missing ({some})")
    index = reading.index
    return Summary(source.root(config), index.counts(), tuple(problems)), index


def _different(counts: dict[str, Count], about: About | None) -> tuple[str, ...]:
    return tuple(differences(counts, about)) if about else ()


def examined(config: DataConfig, cache: Path) -> Examination:
    """Read every image of the configured data set, whether or not it is as its makers say.

    Raises:
        ConfigError: it is not there, or its lists cannot be read.
    """
    source = DATASETS[config.name]
    if issubclass(source, FileSet):
        return _examined_files(source, config, cache)
    config = config.model_copy(update={"allow_partial": True})
    data = load_dataset(config, cache)
    told = summary(config) or Summary(None, _counts(data))
    pictures = [
        (data.images[row].numpy().squeeze(), data.classes[int(data.labels[row])])
        for row in chosen(data.labels.numpy())
    ]
    return Examination(told, fingerprint(config, cache), data, len(data.images), pictures)


def _counts(data: Dataset) -> dict[str, Count]:
    def count(rows: torch.Tensor) -> Count:
        return Count(len(torch.unique(data.labels[rows])), len(rows))

    if data.official is None:
        return {"all": count(torch.arange(len(data.labels)))}
    parts = {"train": data.official.train, "val": data.official.val, "test": data.official.test}
    return {part: count(rows) for part, rows in parts.items() if rows is not None}


def _examined_files(source: type[FileSet], config: DataConfig, cache: Path) -> Examination:
    told, index = _of_files(source, config)
    found = Examination(told, source.digest(index, cache), index.without_pixels(), len(index))
    wanted = set(chosen(index.labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        for row, (picture, made) in enumerate(_decoded(source.pictures(index))):
            if isinstance(made, ConfigError):
                found.bad.append((str(picture.path), f"{made.found}; expected {made.expected}"))
            elif row in wanted:
                found.pictures.append((made, index.classes[index.labels[row]]))
    return found


def _decoded(
    pictures: Iterator[Picture],
) -> Iterator[tuple[Picture, np.ndarray | ConfigError]]:
    def one(picture: Picture) -> tuple[Picture, np.ndarray | ConfigError]:
        try:
            return picture, picture_pixels(picture, SIDE)
        except ConfigError as fault:
            return picture, fault

    return ahead(one, pictures)
