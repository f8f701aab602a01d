"""Options that several commands take, and what they say. Imports nothing heavy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ablate.values.canonical import MAX_SEED, MAX_SEEDS
from trainables.errors import ConfigError

if TYPE_CHECKING:
    from ablate.api import Options

EXIT_CODES = (
    "Exit codes: 0 everything is done; 1 something failed or is missing (the same command "
    "continues); 2 wrong input, no trial was started; 130 stopped by Ctrl-C, 143 by SIGTERM."
)
LONGEST = 100 * 366 * 86400.0  # seconds
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}


def add_out(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--out", default="runs", metavar="DIR", help="The output folder (default: ./runs)."
    )


def add_tracking(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tracking-uri",
        metavar="URI",
        help=(
            "The MLflow store (default: SQLite in --out). Give env:NAME to read the URI "
            "from an environment variable, which keeps a password out of the process list."
        ),
    )


def add_allow_partial(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--allow-partial",
        action="store_true",
        help=(
            "Accept a data set with missing images. It counts as another data set, with "
            "trials of its own."
        ),
    )


def add_device(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device", default="auto", help="The device: auto (default), cpu, cuda or cuda:N."
    )


def add_model(command: argparse.ArgumentParser) -> None:
    """Add a trained model, and the folder of pictures that it looks at."""
    command.add_argument(
        "model",
        metavar="MODEL",
        help="A best.safetensors file, or the trial's folder that contains it.",
    )
    command.add_argument(
        "folder", metavar="FOLDER", help="A folder of pictures, with or without class folders."
    )
    add_device(command)


def add_spec(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add a spec, what is laid over it, and on what it runs."""
    command.add_argument(
        "spec", metavar="SPEC", nargs="?" if optional else None, help="The YAML file of the sweep."
    )
    command.add_argument(
        "--dataset",
        metavar="NAME",
        help="A data set from `ablate data list`, for example cub200 or folder.",
    )
    command.add_argument(
        "--data-root",
        metavar="DIR",
        help=(
            "The folder of the data set. Without a data set in --dataset or the spec, a "
            "folder with one folder for each class."
        ),
    )
    add_allow_partial(command)
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="Override a field of every trial, for example optimizer.lr=1e-4. Can be repeated.",
    )
    command.add_argument(
        "--study",
        action="append",
        default=[],
        metavar="NAME",
        dest="studies",
        help="Run only this study and the studies that it builds on. Can be repeated.",
    )
    command.add_argument(
        "--seeds",
        metavar="N",
        help=("The number of seeds, or a list such as 0,1,5, for all studies except searches."),
    )
    add_device(command)
    command.add_argument(
        "--same-code",
        action="store_true",
        help=(
            "Confirm that changed source code gives the same numbers, so that known "
            "results at the same REVISION are reused from now on."
        ),
    )


def add_sweep(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add a spec with where it would run."""
    add_spec(command, optional=optional)
    command.add_argument(
        "--pilot",
        action="store_true",
        help=(
            "With --plan: run a few steps of each kind of new trial to estimate time and "
            "memory, and to find faults that would end a trial at its start."
        ),
    )
    command.add_argument(
        "--address",
        metavar="ADDRESS",
        help="The address of a Ray cluster; `auto` finds a running one.",
    )
    add_tracking(command)
    add_out(command)


# ------------------------------------------------------------------ what options say


def parse_positive(text: str) -> int:
    """Read a count of at least one."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def parse_duration(text: str, option: str = "--budget") -> float:
    """Read a duration: `2h`, `90m`, `1h30m`, `45` (seconds)."""
    if not re.fullmatch(r"(\d+(\.\d+)?[hms])*(\d+(\.\d+)?)?", text) or not text:
        raise ConfigError(option, f"{text!r} is no duration such as 2h, 90m or 1h30m")
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms]?)", text)
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if total > LONGEST:
        raise ConfigError(option, f"{text[:40]!r} is above 100 years. Leave it out for no end.")
    return total


def parse_seeds(text: str) -> int | tuple[int, ...]:
    """Read seeds: `5` for 0…4, or `0,3,4`."""
    is_list, numbers = "," in text, tuple[int, ...]()
    if re.fullmatch(r"\d{1,10}(,\d{1,10})*,?", text):
        numbers = tuple(int(number) for number in text.strip(",").split(","))
    many = len(numbers) if is_list else max(numbers, default=0)
    distinct = len(set(numbers)) == len(numbers) and max(numbers, default=0) <= MAX_SEED
    if not 1 <= many <= MAX_SEEDS or not distinct:
        raise ConfigError(
            "--seeds",
            f"{text!r} is neither a number of seeds from 1 to {MAX_SEEDS} nor a list of distinct "
            f"ones as 0,1,5, each at most {MAX_SEED}; for the one seed 0 alone, give 0,",
        )
    return numbers if is_list else numbers[0]


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read `--set optimizer.lr=1e-4`, typed as YAML types it."""
    from ablate.spec.yaml_loader import load_text

    chosen: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError("--set", f"{pair!r} must be key=value, as in --set optimizer.lr=1e-4")
        if key in chosen:
            raise ConfigError(f"--set {key}", "it is given twice. Remove one.")
        chosen[key] = load_text(value, f"--set {key}").data
    return chosen


def build_options(args: argparse.Namespace) -> Options:
    """Return the options of a run that parsed arguments ask for."""
    from dataclasses import fields

    from ablate.api import Options

    # arguments that are named as the options and need no reading
    names = {field.name for field in fields(Options)}
    values = {
        name: value for name, value in vars(args).items() if name in names and value is not None
    }
    values |= {"settings": parse_settings(args.settings), "studies": tuple(args.studies)}
    if "seeds" in values:
        values["seeds"] = parse_seeds(values["seeds"])
    for name in ("budget", "checkpoint_seconds", "stuck_after"):
        if name in values:
            values[name] = parse_duration(values[name], f"--{name.replace('_', '-')}")
    if values.get("budget") == 0:
        raise ConfigError("--budget", f"{args.budget!r} is no time. Give --plan to run nothing.")
    values["stuck_after"] = values.get("stuck_after") or None
    return Options(**values, report=not getattr(args, "no_report", False))
