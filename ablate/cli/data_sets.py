"""List the data sets on this machine, and check all images of one."""

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

SIDE = 96  # short side to which images are decoded, in pixels


def describe_data_sets() -> list[str]:
    """Return a line for each data set and for each of its faults, without reading the images."""
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
    if name in ("folder", "manifest"):
        kind = "class folders" if name == "folder" else "a CSV or Parquet table of images"
        yield f"{name}: {kind} of your own; give data.root"
        return
    about = DATASETS[name].ABOUT
    title = f"{name} ({about.title})" if about else name
    config = resolve_data_config({"name": name, "allow_partial": True})
    try:
        listing = _read_listing(DATASETS[name], config)
    except ConfigError as error:
        is_absent = error.path == "data.root" and error.message.startswith("it is not given")
        if about and is_absent:
            yield f"{title}: not here; offered at {about.offered}"
        else:
            yield f"{title}: {error.message}"
        return
    if listing is None:
        yield f"{title}: of another package; `ablate data check {name}` reads it"
        return
    rows, root, problems = listing
    counts = "; ".join(f"{part} {count}" for part, count in count_parts(rows).items())
    yield f"{title}: {root or 'comes with ablate'}: {counts.removeprefix('all ')}"
    yield from (f"  {problem}" for problem in problems)
    if problems and about is not None:
        yield f"  offered at {about.offered}; --allow-partial accepts it as it is"


def _read_listing(
    source: type[DataSource], config: DataConfig
) -> tuple[Dataset, Path | None, Sequence[str]] | None:
    """Return the rows of a data set, its folder (None: in a package) and its faults.

    Returns:
        None if only `load` can read the rows.
    """
    if issubclass(source, FileSet):
        reading = source.read_listing(config)
        return reading.rows, source.locate_root(config), reading.problems
    rows = source.without_pixels(config, locate_default_cache())
    if rows is None or source.ABOUT is None:
        return None if rows is None else (rows, None, ())
    problems = source.ABOUT.list_differences(count_parts(rows))
    return rows, locate_root(config, source.ABOUT), problems


def check_data_set(args: argparse.Namespace) -> int:
    """Read and hash every image again, and print all faults; return 1 if there are any."""
    name = args.name or ("folder" if args.data_root else "")
    if name not in DATASETS:
        raise ConfigError("NAME", f"{name!r} is no data set. {suggest_nearest(name, DATASETS)}")
    values = {"name": name, "root": args.data_root, "allow_partial": True}
    config, cache, source = resolve_data_config(values), locate_default_cache(), DATASETS[name]
    start = time.monotonic()
    decode_faults: list[str] = []
    with require_cache(cache), show_progress():
        forget_hashes(cache / name)
        listing = _read_listing(source, config)
        if issubclass(source, FileSet):
            index = source.read_listing(config).index
            digest = source.compute_digest(index, cache)
            results = map_ahead(_find_decode_fault, source.iterate_pictures(index))
            decode_faults = [fault for fault in results if fault]
        else:
            dataset, digest = load_dataset(config, cache), fingerprint(config, cache)
    rows, root, problems = listing or (dataset, None, ())
    seconds = time.monotonic() - start
    lines = [
        f"{name}: {root or 'comes with its package'}",
        f"fingerprint {digest[:16]}",
        *(f"{part}: {count}" for part, count in count_parts(rows).items()),
        *(f"not as its makers say: {problem}" for problem in problems),
        _describe_splits(rows),
        f"{len(rows.labels):,} images read in {seconds:.1f} s, {len(decode_faults):,} bad",
        *(f"bad: {fault}" for fault in decode_faults),
    ]
    print_text("\n".join(lines))
    return 1 if decode_faults or (problems and not args.allow_partial) else 0


def _find_decode_fault(picture: Picture) -> str | None:
    """Return the path of a picture that cannot be decoded with the reason, else None."""
    try:
        decode_picture(picture, SIDE)
    except ConfigError as error:
        return f"{picture.path}: {error.message}"
    return None


def _describe_splits(dataset: Dataset) -> str:
    """Return the sizes of the splits of trials with the default `data.split`."""
    try:
        splits = split_dataset(dataset, SplitConfig(), "")
    except ConfigError as error:
        return f"it cannot be split: {error.message}"
    counts = []
    for name in ("train", "val", "test"):
        subset = getattr(splits, name)
        queries = "" if subset.queries is None else f", {subset.queries:,} of them queries"
        counts.append(f"{name} {Count(len(subset.classes), len(subset))}{queries}")
    return f"trials: {'; '.join(counts)}"
