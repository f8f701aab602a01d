"""List the data sets on this machine, or check all images of one: `ablate data`."""

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.cli.options import add_allow_partial, add_grey_range, read_grey_range
from trainables.config.images import DataConfig, SplitConfig
from trainables.data.archives import (
    Count,
    DataMissing,
    forget_hashes,
    list_data_folders,
    locate_root,
)
from trainables.data.cache import locate_default_cache, require_cache
from trainables.words.errors import ConfigError
from trainables.words.messages import join_words, suggest_nearest
from trainables.words.terminal import print_text, show_progress

if TYPE_CHECKING:
    from trainables.data.dataset import Dataset, DataSource

MOST_LINES = 50  # on bad images


def add_data(command: argparse.ArgumentParser) -> None:
    command.description = (
        "List or check data sets, which are found by their usual names in the folders of "
        "$ABLATE_DATA. On a cluster each node must have the driver's data sets."
    )
    command.add_argument(
        "action",
        nargs="?",
        choices=("list", "check"),
        default="list",
        help=(
            "The action: `list` shows where each data set is, how many images it has and what "
            "is missing; `check NAME` reads and hashes every image again."
        ),
    )
    command.add_argument(
        "name", nargs="?", help="For `check`: a data set, or a folder of class folders."
    )
    command.add_argument(
        "--data-root", metavar="DIR", help="For `check`: the folder of the data set."
    )
    add_allow_partial(command)
    add_grey_range(command)
    command.set_defaults(run=run_data)


def run_data(args: argparse.Namespace) -> int:
    """List the data sets, or check one; return 1 if the checked one has faults, else 0."""
    if args.action == "check":
        return check_data_set(args)
    if args.name is not None:
        raise ConfigError(
            "NAME",
            "`list` takes no name",
            f"Check this data set by `ablate data check {args.name}`",
        )
    print_text("\n".join(describe_data_sets()))
    return 0


def describe_data_sets() -> list[str]:
    """Return the lines of `ablate data list` on folders, data sets and faults; read no image."""
    from trainables.data.dataset import DATASETS

    folders = list_data_folders()
    lines = [f"data folders: {', '.join(map(str, folders)) or 'none'} ($ABLATE_DATA)"]
    unreadable = [f for f in folders if not (f.is_dir() and os.access(f, os.R_OK | os.X_OK))]
    lines += [f"  {folder} is not a readable folder" for folder in unreadable]
    for name in DATASETS:
        lines += _describe_data_set(name)
    return [*lines, f"decoded images are kept in {locate_default_cache()}"]


def _describe_data_set(name: str) -> Iterator[str]:
    """Yield the line on a data set's place and size, and a line for each fault of its files."""
    from trainables.data.dataset import DATASETS, count_parts, resolve_data_config

    if name in ("folder", "manifest"):
        kind = "class folders" if name == "folder" else "a CSV table of images"
        yield f"{name}: this data set reads {kind} of your own; set data.root"
        return
    about = DATASETS[name].ABOUT
    title = f"{name} ({about.title})" if about else name
    config = resolve_data_config({"name": name, "allow_partial": True})
    try:
        listing = _read_listing(DATASETS[name], config)
    except ConfigError as error:
        text = error.message
        if about and isinstance(error, DataMissing):
            text = f"the data set is not here; it is offered at {about.offered}"
        yield f"{title}: {text}"
        return
    if listing is None:
        yield f"{title}: `ablate data check {name}` reads and counts its images"
        return
    rows, root, problems = listing
    counts = "; ".join(f"{part} {count}" for part, count in count_parts(rows).items())
    yield f"{title}: {root or 'comes with ablate'}: {counts.removeprefix('all ')}"  # all: unsplit
    yield from (f"  {problem}" for problem in problems)
    if problems and about is not None:
        yield f"  the set is offered at {about.offered}; --allow-partial accepts these images"


def _read_listing(
    source: "type[DataSource]", config: DataConfig
) -> "tuple[Dataset, Path | None, Sequence[str]] | None":
    """Return the list of a data set's images, its folder and its faults, without pixels.

    The folder is None if a package has the images. The result is None if only `load` lists images.
    """
    from trainables.data.dataset import count_parts
    from trainables.data.fileset import FileSet

    if issubclass(source, FileSet):
        reading = source.read_listing(config)
        return reading.rows, source.locate_root(config), reading.problems
    rows = source.without_pixels(config, locate_default_cache())
    if rows is None or source.ABOUT is None:
        return None if rows is None else (rows, None, ())
    problems = source.ABOUT.list_differences(count_parts(rows))
    return rows, locate_root(config, source.ABOUT), problems


def check_data_set(args: argparse.Namespace) -> int:
    """Read and hash every image of a data set again, and print its size and all faults.

    Returns:
        1 if an image is bad, or images are missing without `--allow-partial`; else 0.

    Raises:
        ConfigError: after printing, if class folders have no image; or the data set has none.
    """
    from ablate.engine.preflight import describe_single_images
    from trainables.data.dataset import (
        DATASETS,
        count_parts,
        fingerprint,
        load_dataset,
        resolve_data_config,
    )
    from trainables.data.fileset import FileSet
    from trainables.data.survey import build_fault_error, examine_images

    name, root = args.name or ("folder" if args.data_root else ""), args.data_root
    if name not in DATASETS and root is None and Path(name or "-").is_dir():
        name, root = "folder", name
    if name not in DATASETS:
        raise ConfigError(
            "NAME",
            f"no folder {name!r} exists, and the data sets are {join_words(DATASETS)}",
            suggest_nearest(name, DATASETS, "Check the path."),
        )
    grey_range, source = read_grey_range(args), DATASETS[name]
    if grey_range is not None and not issubclass(source, FileSet):
        raise ConfigError("--grey-range", f"{name} has no image files", "Leave out --grey-range")
    values = {"name": name, "root": root, "allow_partial": True, "grey_range": grey_range}
    config, cache = resolve_data_config(values), locate_default_cache()
    start = time.monotonic()
    unreadable: dict[str, ConfigError] = {}
    warnings, greys = list[str](), list[ConfigError]()
    problems: Sequence[str] = ()
    with require_cache(), show_progress():
        forget_hashes(cache / name)  # otherwise known hashes would be reused
        if issubclass(source, FileSet):
            reading = source.read_listing(config)
            rows, root, problems = reading.rows, source.locate_root(config), reading.problems
            digest = source.compute_digest(config.name, reading.listing, cache)
            survey = examine_images(reading.listing, config.grey_range)
            unreadable = survey.unreadable
            try:
                warnings = survey.list_notes()
            except ConfigError as error:  # printed after the other faults
                greys.append(error)
        else:  # a data set of another package may have no listing, but only rows to load
            dataset, digest = load_dataset(config, cache), fingerprint(config, cache)
            rows, root, problems = _read_listing(source, config) or (dataset, None, ())
    singles = describe_single_images(rows.labels, rows.classes)
    seconds = time.monotonic() - start
    lines = [
        f"{name}: {root or 'comes with its package'}",
        f"fingerprint {digest[:16]}",
        *(f"{part}: {count}" for part, count in count_parts(rows).items()),
        *(f"the data set differs from its makers' description: {problem}" for problem in problems),
        _describe_splits(rows),
        *([f"warning: {singles}"] if singles and rows.roles is None else ()),
        *rows.notes,
        *(f"warning: {text}" for text in warnings),
        f"{len(rows.labels):,} images were read in {seconds:.1f} s, {len(unreadable):,} are bad",
        *(f"a bad image: {error}" for error in islice(unreadable.values(), MOST_LINES)),
    ]
    if len(unreadable) > MOST_LINES:
        lines.append(f"and {len(unreadable) - MOST_LINES:,} more images are bad")
    lines += [f"the images cannot be used as they are: {error}" for error in greys]
    print_text("\n".join(lines))
    if issubclass(source, FileSet) and reading.listing.empty:
        raise build_fault_error(reading.listing, unreadable)
    return 1 if unreadable or greys or (problems and not args.allow_partial) else 0


def _describe_splits(dataset: "Dataset") -> str:
    """Return a line with the sizes of the splits that a trial has by the default `data.split`."""
    from trainables.data.splits import split_dataset

    try:
        splits = split_dataset(dataset, SplitConfig(), fingerprint="")
        splits.require_splits(("test",))
    except ConfigError as error:
        return f"trials cannot use the data set: {error}"
    counts = []
    for name in ("train", "val", "test"):
        subset = getattr(splits, name)
        queries = "" if subset.queries is None else f", {subset.queries:,} of them queries"
        counts.append(f"{name} {Count(len(subset.classes), len(subset))}{queries}")
    return f"trials: {'; '.join(counts)} (by the default `data.split`; a spec can divide otherwise)"
