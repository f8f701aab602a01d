"""What is there of each data set, in words, and whether all of it can be used.

`describe_data_sets` reads lists and names; `check_data_set` reads and decodes every image once, and
goes on where one is bad.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from ablate.cli.locate import explain_write_errors
from ablate.values.errors import listed, nearest
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
    """What reading every image of a data set showed.

    dataset: its rows; without pixels where these are in files. pictures: for a contact sheet, with
    their classes. bad: path and reason of each image that cannot be used.
    """

    summary: Summary
    fingerprint: str
    dataset: Dataset
    images: int
    pictures: list[tuple[np.ndarray, str]] = field(default_factory=list)
    bad: list[tuple[str, str]] = field(default_factory=list)


def examine(config: DataConfig, cache: Path) -> Examination:
    """Read every image of the configured data set, whether or not it is as its makers say.

    Raises:
        ConfigError: it is not there, or its lists cannot be read.
    """
    source = DATASETS[config.name]
    if issubclass(source, FileSet):
        return _examine_files(source, config, cache)
    config = config.model_copy(update={"allow_partial": True})
    data = load_dataset(config, cache)
    parts = {"all": torch.arange(len(data.labels))}
    if data.official is not None:
        names = ("train", "val", "test")
        rows_by_part = {name: getattr(data.official, name) for name in names}
        parts = {name: rows for name, rows in rows_by_part.items() if rows is not None}
    counts = {
        name: Count(len(torch.unique(data.labels[rows])), len(rows)) for name, rows in parts.items()
    }
    summary = source.summary(config) or Summary(None, counts)
    pictures = [
        (data.images[row].numpy().squeeze(), data.classes[int(data.labels[row])])
        for row in choose_rows(data.labels.numpy())
    ]
    return Examination(summary, fingerprint(config, cache), data, len(data.images), pictures)


def _examine_files(source: type[FileSet], config: DataConfig, cache: Path) -> Examination:
    def decode(picture: Picture) -> tuple[Picture, np.ndarray | ConfigError]:
        try:
            return picture, picture_pixels(picture, SIDE)
        except ConfigError as fault:
            return picture, fault

    reading = source.reading(config)
    index = reading.index
    summary = Summary(source.root(config), index.counts(), reading.problems)
    digest = source.digest(index, cache)
    examination = Examination(summary, digest, index.without_pixels(), len(index))
    sheet_rows = set(choose_rows(index.labels))
    with own_size_limits():
        for row, (picture, pixels) in enumerate(ahead(decode, source.pictures(index))):
            if isinstance(pixels, ConfigError):
                reason = pixels.message
                examination.bad.append((str(picture.path), reason))
            elif row in sheet_rows:
                examination.pictures.append((pixels, index.classes[index.labels[row]]))
    return examination


def choose_rows(labels: np.ndarray) -> list[int]:
    """Return the first row of each class, or of as many evenly spaced classes as a contact sheet
    holds."""
    first = np.unique(labels, return_index=True)[1]
    places = np.linspace(0, len(first) - 1, min(COLUMNS * ROWS, len(first))).round().astype(int)
    return [int(row) for row in first[np.unique(places)]]


def write_sheet(path: Path, pictures: Sequence[tuple[np.ndarray, str]]) -> None:
    """Write a contact sheet, a PNG of pictures ([H, W, 3] or [H, W] uint8) with their classes.

    Raises:
        OSError: it cannot be written.
    """
    columns = max(1, min(COLUMNS, len(pictures)))
    rows = max(1, -(-len(pictures) // columns))
    sheet = Image.new("RGB", (columns * SIDE, rows * (SIDE + CAPTION)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(10)
    for number, (pixels, label) in enumerate(pictures):
        left, top = number % columns * SIDE, number // columns * (SIDE + CAPTION)
        small = Image.fromarray(pixels).convert("RGB")
        small.thumbnail((SIDE - 4, SIDE - 4))
        sheet.paste(small, (left + (SIDE - small.width) // 2, top + (SIDE - small.height) // 2))
        draw.text((left + 2, top + SIDE), label[:LETTERS], fill="black", font=font)
    sheet.save(path, "PNG")


# ------------------------------------------------------------------ in words


def describe_data_sets() -> list[str]:
    """Return a line for each data set, with a line for each thing that is wrong with it."""
    folders, origin = data_folders()
    lines = [f"data folders: {', '.join(map(str, folders)) or 'none'} ({origin})"]
    lines += [
        f"  {folder}: no folder that can be read"
        for folder in folders
        if not (folder.is_dir() and os.access(folder, os.R_OK | os.X_OK))
    ]
    for name in DATASETS:
        lines += _describe_data_set(name)
    return [*lines, f"decoded images are kept in {default_cache()}"]


def _describe_data_set(name: str) -> Iterator[str]:
    about = DATASETS[name].ABOUT
    title = f"{name} ({about.title})" if about else name
    if about is None and name in ("folder", "manifest"):
        what = "class folders" if name == "folder" else "a CSV or Parquet table of images"
        yield f"{name}: {what} of your own; give data.root"
        return
    try:
        summary = DATASETS[name].summary(data_config({"name": name}))
    except ConfigError as fault:
        if about and fault.path == "data.root" and fault.found.startswith("nothing"):
            yield f"{title}: not here; offered at {about.offered}"
        else:
            yield f"{title}: {fault.message}"
        return
    if summary is None:
        yield f"{title}: of another package; `ablate data check {name}` reads it"
        return
    yield f"{title}: {summary.root or 'comes with ablate'}: {_join_counts(summary.counts)}"
    yield from (f"  {problem}" for problem in summary.problems)
    if summary.problems and about is not None:
        yield f"  offered at {about.offered}; or go on with what is there: --allow-partial"


def _join_counts(counts: Mapping[str, Count]) -> str:
    return "; ".join(f"{part} {count}" for part, count in counts.items()).removeprefix("all ")


def check_data_set(args: argparse.Namespace) -> int:
    """Read and hash every image anew, say what is wrong, and write a contact sheet.

    Returns:
        0 if all of it can be used, else 1.

    Raises:
        ConfigError: no such data set, or it is not there.
    """
    name = args.name or ("folder" if args.data_root else "")
    if name not in DATASETS:
        expected = f"one of {listed(DATASETS)}"
        raise ConfigError(
            "NAME", repr(name) if name else "nothing", expected, nearest(name, DATASETS)
        )
    config, cache = data_config({"name": name, "root": args.data_root}), default_cache()
    start = time.monotonic()
    with required(cache), progress_shown(), hashing_anew():
        examination = examine(config, cache)
    seconds = time.monotonic() - start
    path = user_path(args.sheet or f"{name}-sheet.png", "--sheet")
    with explain_write_errors(path, "--sheet"):
        write_sheet(path, examination.pictures)
    summary, bad = examination.summary, examination.bad
    lines = [
        f"{name}: {summary.root or 'comes with its package'}",
        f"fingerprint {examination.fingerprint[:16]}",
        *(f"{part}: {count}" for part, count in summary.counts.items()),
        *(f"not as its makers say: {problem}" for problem in summary.problems),
        _describe_splits(examination.dataset),
        f"{examination.images:,} images read in {seconds:.1f} s, {len(bad):,} bad",
        *(f"bad: {file}: {reason}" for file, reason in bad),
        f"contact sheet: {path}",
    ]
    say("\n".join(lines))
    return 1 if bad or (summary.problems and not args.allow_partial) else 0


def _describe_splits(dataset: Dataset) -> str:
    """Say what trials train on and are evaluated on, unless data.split says otherwise."""
    try:
        parts = split(dataset, SplitConfig(), "")
    except ConfigError as fault:
        return f"not to be divided: {fault.message}"
    counts = []
    for part in ("train", "val", "test"):
        subset = getattr(parts, part)
        queries = "" if subset.queries is None else f", {subset.queries:,} of them queries"
        counts.append(f"{part} {Count(len(subset.classes), len(subset))}{queries}")
    return f"trials: {'; '.join(counts)}"
