"""`ablate data`: which data sets are here, and whether all of one can be used."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ablate.cli.examine import Examination, Summary, examined, summary
from ablate.values.remedies import nearest
from ablate.values.terminal import progress_shown, say
from trainables.config.images import DataConfig, SplitConfig
from trainables.data.cache import required
from trainables.data.dataset import DATASETS, data_config
from trainables.data.files.about import Count
from trainables.data.files.hashes import hashing_anew
from trainables.data.files.places import data_folders
from trainables.data.files.sheet import write_sheet
from trainables.data.splits import split
from trainables.errors import ConfigError
from trainables.machine.cache_folder import default_cache
from trainables.machine.texts import user_path


def data(args: argparse.Namespace) -> int:
    """0; of `check` 1 where some of the data set cannot be used."""
    if args.action == "push":
        from ablate.cli.push import pushed

        root = args.data_root
        return pushed(_config(args.name, root, allow_partial=args.allow_partial), args.storage)
    if args.storage is not None:
        raise ConfigError("--storage", "it without push", "`push` before it", "Or leave it out")
    if args.action == "check":
        return checked(args.name, args.data_root, args.sheet, allow_partial=args.allow_partial)
    for option, given in (("NAME", args.name), ("--data-root", args.data_root)):
        if given is not None:
            raise ConfigError(option, repr(given), "nothing with list", "Say `check` before it")
    say("\n".join(listed()))
    return 0


def listed() -> list[str]:
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
        found = summary(data_config({"name": name}))
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


def checked(name: str | None, root: str | None, sheet: str | None, *, allow_partial: bool) -> int:
    """Read and hash every image anew, say what is wrong, write a contact sheet.

    Returns: 0 if all of it can be used, else 1.

    Raises:
        ConfigError: no such data set, or it is not there.
    """
    config, cache = _config(name, root), default_cache()
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
    say("\n".join(_told(config.name, found, seconds, path)))
    return 1 if found.bad or (found.summary.problems and not allow_partial) else 0


def _config(name: str | None, root: str | None, *, allow_partial: bool = False) -> DataConfig:
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


def _told(name: str, found: Examination, seconds: float, sheet: Path) -> Iterator[str]:
    told: Summary = found.summary
    yield f"{name}: {told.root or 'comes with its package'}"
    yield f"fingerprint {found.fingerprint[:16]}"
    yield from (f"{part}: {count}" for part, count in told.counts.items())
    yield from (f"not as its makers say: {problem}" for problem in told.problems)
    yield from _divided(found)
    yield f"{found.images:,} images read in {seconds:.1f} s, {len(found.bad):,} bad"
    yield from (f"bad: {path}: {reason}" for path, reason in found.bad)
    yield f"contact sheet: {sheet}"


def _divided(found: Examination) -> Iterator[str]:
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
