"""What is there of each data set, in words, and whether all of it can be used.

`describe_data_sets` reads lists and names; `check_data_set` reads and decodes every image once, and
goes on where one is bad.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ablate.values.errors import suggest_nearest
from ablate.values.terminal import print_text, show_progress
from trainables.config.images import DataConfig, SplitConfig
from trainables.data.cache import require_cache
from trainables.data.dataset import (
    DATASETS,
    Dataset,
    DataSource,
    count_parts,
    fingerprint,
    load_dataset,
    resolve_data_config,
)
from trainables.data.decode import Picture, decode_picture, map_ahead
from trainables.data.files.data_set_markers import Count, list_data_folders, locate_root
from trainables.data.files.fileset import FileSet
from trainables.data.files.hashes import forget_hashes
from trainables.data.splits import split_dataset
from trainables.errors import ConfigError
from trainables.machine.cache_folder import locate_default_cache

SIDE = 96  # to which images are decoded, in pixels


def describe_data_sets() -> list[str]:
    """Return a line for each data set, with a line for each thing that is wrong with it."""
    folders = list_data_folders()
    lines = [f"data folders: {', '.join(map(str, folders)) or 'none'} ($ABLATE_DATA)"]
    lines += [
        f"  {folder}: no folder that can be read"
        for folder in folders
        if not (folder.is_dir() and os.access(folder, os.R_OK | os.X_OK))
    ]
    for name in DATASETS:
        lines += _describe_data_set(name)
    return [*lines, f"decoded images are kept in {locate_default_cache()}"]


def _describe_data_set(name: str) -> Iterator[str]:
    about = DATASETS[name].ABOUT
    title = f"{name} ({about.title})" if about else name
    if about is None and name in ("folder", "manifest"):
        kind = "class folders" if name == "folder" else "a CSV table of images"
        yield f"{name}: {kind} of your own; give data.root"
        return
    config = resolve_data_config({"name": name, "allow_partial": True})
    try:
        reading = _read_parts(DATASETS[name], config)
    except ConfigError as fault:
        if about and fault.path == "data.root" and fault.message.startswith("it is not given"):
            yield f"{title}: not here; offered at {about.offered}"
        else:
            yield f"{title}: {fault.message}"
        return
    if reading is None:
        yield f"{title}: of another package; `ablate data check {name}` reads it"
        return
    rows, root, problems = reading
    counts = "; ".join(f"{part} {count}" for part, count in count_parts(rows).items())
    yield f"{title}: {root or 'comes with ablate'}: {counts.removeprefix('all ')}"
    yield from (f"  {problem}" for problem in problems)
    if problems and about is not None:
        yield f"  offered at {about.offered}; or go on with what is there: --allow-partial"


def _read_parts(
    source: type[DataSource], config: DataConfig
) -> tuple[Dataset, Path | None, Sequence[str]] | None:
    """Return rows, folder (None: in a package) and faults; None where only `load` knows them."""
    if issubclass(source, FileSet):
        reading = source.read_listing(config)
        return reading.rows, source.locate_root(config), reading.problems
    rows = source.without_pixels(config, locate_default_cache())
    if rows is None:
        return None
    if source.ABOUT is None:
        return rows, None, ()
    problems = source.ABOUT.list_differences(count_parts(rows))
    return rows, locate_root(config, source.ABOUT), problems


# ------------------------------------------------------------------ reading every image


def check_data_set(args: argparse.Namespace) -> int:
    """Read and hash every image again, and say what is wrong.

    Returns:
        0 if all of it can be used, else 1.

    Raises:
        ConfigError: no such data set, or it is not there.
    """
    name = args.name or ("folder" if args.data_root else "")
    if name not in DATASETS:
        raise ConfigError("NAME", f"{name!r} is no data set. {suggest_nearest(name, DATASETS)}")
    data = {"name": name, "root": args.data_root, "allow_partial": True}
    config, cache, source = resolve_data_config(data), locate_default_cache(), DATASETS[name]
    start = time.monotonic()
    bad: list[str] = []
    with require_cache(cache), show_progress():
        forget_hashes(cache / name)
        reading = _read_parts(source, config)
        if issubclass(source, FileSet):
            index = source.read_listing(config).index
            digest = source.compute_digest(index, cache)
            pictures = source.iterate_pictures(index)
            bad = [fault for fault in map_ahead(_find_decode_fault, pictures) if fault]
        else:
            dataset, digest = load_dataset(config, cache), fingerprint(config, cache)
    rows, root, problems = reading or (dataset, None, ())
    seconds = time.monotonic() - start
    lines = [
        f"{name}: {root or 'comes with its package'}",
        f"fingerprint {digest[:16]}",
        *(f"{part}: {count}" for part, count in count_parts(rows).items()),
        *(f"not as its makers say: {problem}" for problem in problems),
        _describe_splits(rows),
        f"{len(rows.labels):,} images read in {seconds:.1f} s, {len(bad):,} bad",
        *(f"bad: {line}" for line in bad),
    ]
    print_text("\n".join(lines))
    return 1 if bad or (problems and not args.allow_partial) else 0


def _find_decode_fault(picture: Picture) -> str | None:
    """Return the path of a picture that cannot be decoded with the reason, else None."""
    try:
        decode_picture(picture, SIDE)
    except ConfigError as fault:
        return f"{picture.path}: {fault.message}"
    return None


def _describe_splits(dataset: Dataset) -> str:
    """Say what trials train on and are evaluated on, unless data.split says otherwise."""
    try:
        parts = split_dataset(dataset, SplitConfig(), "")
    except ConfigError as fault:
        return f"not to be divided: {fault.message}"
    counts = []
    for part in ("train", "val", "test"):
        subset = getattr(parts, part)
        queries = "" if subset.queries is None else f", {subset.queries:,} of them queries"
        counts.append(f"{part} {Count(len(subset.classes), len(subset))}{queries}")
    return f"trials: {'; '.join(counts)}"
