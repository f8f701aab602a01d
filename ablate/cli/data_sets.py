"""What is there of each data set, in words, and whether all of it can be used.

A look (`summary`) reads lists and names; an examination (`examined`) reads and decodes every image
once, and goes on where one is bad.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from ablate.values.errors import nearest
from ablate.values.terminal import progress_shown, say
from trainables.config.images import DataConfig, SplitConfig
from trainables.data.cache import required
from trainables.data.dataset import (
    DATASETS,
    Dataset,
    Summary,
    data_config,
    fingerprint,
    load_dataset,
)
from trainables.data.files.about import Count
from trainables.data.files.fileset import FileSet
from trainables.data.files.first_pass import Picture, ahead, own_size_limits, picture_pixels
from trainables.data.files.hashes import hashing_anew
from trainables.data.files.places import data_folders
from trainables.data.splits import split
from trainables.errors import ConfigError
from trainables.machine.cache_folder import default_cache
from trainables.machine.texts import user_path

SIDE, CAPTION = 96, 14  # pixels
COLUMNS, ROWS = 12, 8
LETTERS = 15  # of a class's name


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
    summary = source.summary(config) or Summary(None, _count_parts(data))
    pictures = [
        (data.images[row].numpy().squeeze(), data.classes[int(data.labels[row])])
        for row in choose_rows(data.labels.numpy())
    ]
    return Examination(summary, fingerprint(config, cache), data, len(data.images), pictures)


def _count_parts(data: Dataset) -> dict[str, Count]:
    def count(rows: torch.Tensor) -> Count:
        return Count(len(torch.unique(data.labels[rows])), len(rows))

    if data.official is None:
        return {"all": count(torch.arange(len(data.labels)))}
    parts = {"train": data.official.train, "val": data.official.val, "test": data.official.test}
    return {part: count(rows) for part, rows in parts.items() if rows is not None}


def _examined_files(source: type[FileSet], config: DataConfig, cache: Path) -> Examination:
    reading = source.reading(config)
    index = reading.index
    summary = Summary(source.root(config), index.counts(), reading.problems)
    found = Examination(summary, source.digest(index, cache), index.without_pixels(), len(index))
    wanted = set(choose_rows(index.labels))
    with own_size_limits():
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


def choose_rows(labels: np.ndarray) -> list[int]:
    """Choose the first row of each class, or of so many classes as a contact sheet holds, evenly
    spaced."""
    _, first = np.unique(labels, return_index=True)
    most = COLUMNS * ROWS
    places = np.linspace(0, len(first) - 1, min(most, len(first))).round().astype(int)
    return [int(first[place]) for place in dict.fromkeys(places.tolist())]


def write_sheet(path: Path, pictures: Sequence[tuple[np.ndarray, str]]) -> None:
    """Write a contact sheet, a PNG of pictures ([H, W, 3] or [H, W] uint8) with their classes.

    Raises:
        OSError: it cannot be written.
    """
    columns = max(1, min(COLUMNS, len(pictures)))
    rows = max(1, -(-len(pictures) // columns))
    sheet = Image.new("RGB", (columns * SIDE, rows * (SIDE + CAPTION)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(10)
    for place, (pixels, label) in enumerate(pictures):
        left, top = place % columns * SIDE, place // columns * (SIDE + CAPTION)
        small = Image.fromarray(pixels).convert("RGB")
        small.thumbnail((SIDE - 4, SIDE - 4))
        sheet.paste(small, (left + (SIDE - small.width) // 2, top + (SIDE - small.height) // 2))
        draw.text((left + 2, top + SIDE), label[:LETTERS], fill="black", font=font)
    sheet.save(path, "PNG")


# ------------------------------------------------------------------ in words


def describe_data_sets() -> list[str]:
    """A line for each data set, with a line for each thing that is wrong with it."""
    folders, said = data_folders()
    lines = [f"data folders: {', '.join(map(str, folders)) or 'none'} ({said})"]
    lines += [f"  {folder}: no folder that can be read" for folder in folders if not _there(folder)]
    for name in DATASETS:
        lines += _lines(name)
    return [*lines, f"decoded images are kept in {default_cache()}"]


def _there(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)


def _lines(name: str) -> Iterator[str]:
    about = DATASETS[name].ABOUT
    title = f"{name} ({about.title})" if about else name
    if about is None and name in ("folder", "manifest"):
        what = "class folders" if name == "folder" else "a CSV or Parquet table of images"
        yield f"{name}: {what} of your own; give data.root"
        return
    try:
        found = DATASETS[name].summary(data_config({"name": name}))
    except ConfigError as fault:
        here = about is None or fault.path != "data.root" or not fault.found.startswith("nothing")
        if not here and about is not None:
            yield f"{title}: not here; offered at {about.offered}"
        else:
            yield f"{title}: found {fault.found}; expected {fault.expected}. {fault.remedy}"
        return
    if found is None:
        yield f"{title}: of another package; `ablate data check {name}` reads it"
        return
    yield f"{title}: {found.root or 'comes with ablate'}: {_counts(found.counts)}"
    yield from (f"  {problem}" for problem in found.problems)
    if found.problems and about is not None:
        yield f"  offered at {about.offered}; or go on with what is there: --allow-partial"


def _counts(counts: Mapping[str, Count]) -> str:
    return "; ".join(f"{part} {count}" for part, count in counts.items()).removeprefix("all ")


def check_data_set(
    name: str | None, root: str | None, sheet: str | None, *, allow_partial: bool
) -> int:
    """Read and hash every image anew, say what is wrong, write a contact sheet.

    Returns: 0 if all of it can be used, else 1.

    Raises:
        ConfigError: no such data set, or it is not there.
    """
    config, cache = named_config(name, root), default_cache()
    begun = time.monotonic()
    with required(cache), progress_shown(), hashing_anew():
        found = examined(config, cache)
    seconds = time.monotonic() - begun
    path = user_path(sheet or f"{config.name}-sheet.png", "--sheet")
    try:
        write_sheet(path, found.pictures)
    except OSError as error:
        raise ConfigError(
            "--sheet", f"{path}: {error.strerror}", "a file that can be written"
        ) from error
    say("\n".join(_describe(config.name, found, seconds, path)))
    return 1 if found.bad or (found.summary.problems and not allow_partial) else 0


def named_config(name: str | None, root: str | None, *, allow_partial: bool = False) -> DataConfig:
    """Of a data set as it is named; class folders, if only they are.

    Raises:
        ConfigError: there is none of that name.
    """
    name = name or ("folder" if root else "")
    if name not in DATASETS:
        known = list(DATASETS)
        raise ConfigError(
            "NAME",
            repr(name) if name else "nothing",
            f"one of {', '.join(known)}",
            nearest(name, known) or "Choose one of those",
        )
    return data_config({"name": name, "root": root, "allow_partial": allow_partial})


def _describe(name: str, found: Examination, seconds: float, sheet: Path) -> Iterator[str]:
    told: Summary = found.summary
    yield f"{name}: {told.root or 'comes with its package'}"
    yield f"fingerprint {found.fingerprint[:16]}"
    yield from (f"{part}: {count}" for part, count in told.counts.items())
    yield from (f"not as its makers say: {problem}" for problem in told.problems)
    yield from _describe_splits(found)
    yield f"{found.images:,} images read in {seconds:.1f} s, {len(found.bad):,} bad"
    yield from (f"bad: {path}: {reason}" for path, reason in found.bad)
    yield f"contact sheet: {sheet}"


def _describe_splits(found: Examination) -> Iterator[str]:
    """What trials train on and are evaluated on, unless data.split says otherwise."""
    try:
        parts = split(found.dataset, SplitConfig(), "")
    except ConfigError as fault:
        yield f"not to be divided: found {fault.found}; expected {fault.expected}"
        return
    shown = []
    for part in ("train", "val", "test"):
        subset = getattr(parts, part)
        roles = "" if subset.queries is None else f", {subset.queries:,} of them queries"
        shown.append(f"{part} {Count(len(subset.classes), len(subset))}{roles}")
    yield f"trials: {'; '.join(shown)}"
