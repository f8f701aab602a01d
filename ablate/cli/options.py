"""Define the options that several commands share, parse their values, and check their files."""

import argparse
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.designs.parts import MAX_SEED, MAX_SEEDS
from trainables.words.errors import ConfigError
from trainables.words.texts import expand_user_path

if TYPE_CHECKING:
    from ablate.api import Options
    from ablate.ledger.records import Records
    from ablate.spec.model import LoadedSpec

EXIT_CODES = (
    "Exit codes: 0 everything is done; 1 something failed or is missing (the same command "
    "continues); 2 wrong input, or files that cannot be used (results recorded before stay); 130 "
    "stopped by Ctrl-C, 143 by SIGTERM."
)
MAX_SECONDS = 100 * 366 * 86400.0  # 100 years
UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}


def add_out(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--out", default="runs", metavar="DIR", help="The output folder (default: ./runs)."
    )


def add_json(command: argparse.ArgumentParser) -> None:
    """Add --json; `ablate.cli.main` then prints errors as JSON, too."""
    command.add_argument(
        "--json", action="store_true", help="Print JSON, and errors as JSON on standard error."
    )


def add_sweep_name(command: argparse.ArgumentParser, default: str = "the latest one") -> None:
    command.add_argument("sweep", nargs="?", help=f"The sweep, by id or name (default: {default}).")


def add_tracking(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="The MLflow store (default: SQLite in --out), or env:NAME to hide a password.",
    )


def add_list(
    command: argparse.ArgumentParser, option: str, metavar: str, name: str, text: str
) -> None:
    """Add an option that can be repeated; `name` is that of the list in the parsed arguments."""
    command.add_argument(option, action="append", default=[], metavar=metavar, dest=name, help=text)


def add_trackers(command: argparse.ArgumentParser) -> None:
    add_list(
        command,
        "--tracker",
        "NAME",
        "trackers",
        (
            "A further place for results: `tensorboard` (event files in --out), `wandb` or "
            "wandb:PROJECT (Weights & Biases). Can be repeated."
        ),
    )


def add_allow_partial(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--allow-partial",
        action="store_true",
        help="Accept a data set with missing images. It then counts as another data set.",
    )


def add_grey_range(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--grey-range",
        nargs=2,
        type=float,
        metavar=("BLACK", "WHITE"),
        help=(
            "The values of black and white in greys of 16 or 32 bits and of floats, as "
            "data.grey_range in a spec. A trained model brings those of its trial."
        ),
    )


def read_grey_range(args: argparse.Namespace) -> tuple[float, float] | None:
    """Return the values of black and white of --grey-range; None if it is not given."""
    if args.grey_range is None:
        return None
    black, white = args.grey_range
    if not -math.inf < black < white < math.inf:
        raise ConfigError(
            "--grey-range",
            f"{black:g} and {white:g} must be the value of black and a larger one of white",
            "Give for example --grey-range 0 4095",
        )
    return black, white


def add_device(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device", default="auto", help="The device: auto (default), cpu, cuda or cuda:N."
    )


def add_model(command: argparse.ArgumentParser) -> None:
    """Add the arguments MODEL, FOLDER (of pictures) and --device, and describe the exit codes."""
    command.epilog = (
        "Exit codes: 0 all pictures were used; 1 some could not be read; 2 the input is wrong."
    )
    command.add_argument(
        "model",
        metavar="MODEL",
        help="A best.safetensors file, or the folder of a trial that has one.",
    )
    command.add_argument(
        "folder", metavar="FOLDER", help="A folder of pictures, with or without class folders."
    )
    add_device(command)


def add_spec(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add a spec, options that override its values, and the device."""
    command.add_argument(
        "spec", metavar="SPEC", nargs="?" if optional else None, help="The YAML file of the sweep."
    )
    command.add_argument(
        "--dataset", metavar="NAME", help="A data set of `ablate data list`, for example cub200."
    )
    command.add_argument(
        "--data-root",
        metavar="DIR",
        help="The folder of the data set, or of class folders if the spec names no data set.",
    )
    add_allow_partial(command)
    add_list(
        command,
        "--set",
        "KEY=VALUE",
        "settings",
        "Override a field of every trial, for example optimizer.lr=1e-4. Can be repeated.",
    )
    add_list(
        command,
        "--levels",
        "FACTOR=LEVEL,…",
        "levels",
        "Keep only these levels of a factor of the spec. Can be repeated for other factors.",
    )
    add_list(
        command,
        "--study",
        "NAME",
        "studies",
        "Run only this study and the studies that it builds on. Can be repeated.",
    )
    command.add_argument(
        "--seeds",
        metavar="N",
        help="The number of seeds, or a list such as 0,1,5, of the studies that compare cells; "
        "searches, and promote studies with a list of seeds, keep their own.",
    )
    add_device(command)
    command.add_argument(
        "--allow-code",
        action="store_true",
        help="Allow a local file that the spec names as a sampler's class to run as code.",
    )
    command.add_argument(
        "--same-code",
        action="store_true",
        help="Confirm that changed source code gives the same numbers, and reuse known results.",
    )


def add_sweep(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add a spec, and options that say where it runs and is recorded."""
    add_spec(command, optional=optional)
    command.add_argument(
        "--pilot",
        action="store_true",
        help=(
            "With --plan: run a few steps of new trials to estimate time and memory and "
            "find faults."
        ),
    )
    command.add_argument(
        "--address", metavar="ADDRESS", help="A Ray cluster's address; `auto` finds a running one."
    )
    add_tracking(command)
    add_trackers(command)
    add_out(command)


def parse_positive(text: str) -> int:
    """Return an option's text as a whole number from 1 to 2^31."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 2147483648")
    return int(text)


def parse_duration(text: str, option: str = "--budget") -> float:
    """Return the seconds of a duration such as `2h`, `90m`, `1h30m` or `45` (seconds)."""
    if not re.fullmatch(r"(\d+(\.\d+)?[hms])*(\d+(\.\d+)?)?", text) or not text:
        raise ConfigError(option, f"{text!r} is not a duration", "Give one as 2h, 90m or 1h30m")
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms]?)", text)
    seconds = sum(float(number) * UNIT_SECONDS[unit] for number, unit in parts)
    if seconds > MAX_SECONDS:
        raise ConfigError(
            option, f"{text[:40]!r} is above 100 years", "Leave the option out for no limit"
        )
    return seconds


def parse_seeds(text: str) -> int | tuple[int, ...]:
    """Return a number of seeds (`5` means seeds 0 to 4) or a list of seeds (`0,3,4` or `0,`)."""
    if re.fullmatch(r"\d{1,10}(,\d{1,10})*,?", text):
        seeds = tuple(int(number) for number in text.strip(",").split(","))
        if "," not in text and 1 <= seeds[0] <= MAX_SEEDS:
            return seeds[0]
        is_distinct = len(set(seeds)) == len(seeds) <= MAX_SEEDS
        if "," in text and is_distinct and max(seeds) <= MAX_SEED:
            return seeds
    raise ConfigError(
        "--seeds",
        f"{text!r} is neither a number of seeds nor a list of distinct seeds",
        f"Give a number from 1 to {MAX_SEEDS}, or a list of seeds up to {MAX_SEED}, as `0,1,5` or "
        "`0,`",
    )


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the values of `--set optimizer.lr=1e-4` by key, typed as YAML types them."""
    from ablate.spec.yaml_loader import load_text

    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(
                "--set", f"{pair!r} is not key=value", "Write it as --set optimizer.lr=1e-4"
            )
        if key in settings:
            raise ConfigError(f"--set {key}", "this key is given twice", "Keep one of the two")
        settings[key] = load_text(value, f"--set {key}").data
    return settings


def parse_levels(pairs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the levels of `--levels backbone=lite0,resnet50` by factor."""
    levels: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        factor, _, names = pair.partition("=")
        if not factor or not names:
            raise ConfigError(
                "--levels",
                f"{pair!r} is not FACTOR=LEVEL,…",
                "Write it as --levels backbone=lite0,resnet50",
            )
        levels[factor] = (*levels.get(factor, ()), *names.split(","))
    return levels


def load_spec(args: argparse.Namespace) -> "LoadedSpec":
    """Read the spec that parsed arguments name; torch is not imported."""
    from ablate.spec.read import read_spec

    settings, levels = parse_settings(args.settings), parse_levels(args.levels)
    return read_spec(args.spec, settings, args.allow_code, levels)


def build_options(args: argparse.Namespace) -> "Options":
    """Build the options of a run from parsed arguments."""
    from dataclasses import fields

    from ablate.api import Options

    # most arguments have the name of their option, and need no parsing
    names = {field.name for field in fields(Options)}
    values = {
        name: value for name, value in vars(args).items() if name in names and value is not None
    }
    values |= {"settings": parse_settings(args.settings), "studies": tuple(args.studies)}
    values["trackers"] = tuple(values.get("trackers", ()))
    values["levels"] = parse_levels(args.levels)
    if "seeds" in values:
        values["seeds"] = parse_seeds(values["seeds"])
    for name in ("budget", "checkpoint_seconds", "stuck_after"):
        if name in values:
            values[name] = parse_duration(values[name], f"--{name.replace('_', '-')}")
    if values.get("budget") == 0:
        raise ConfigError(
            "--budget", f"{args.budget!r} is too short", "Give 90m or 8h, or --plan to run nothing"
        )
    values["stuck_after"] = values.get("stuck_after") or None  # 0 seconds: never
    return Options(**values, report=not getattr(args, "no_report", False))


def locate_ledger(out: str) -> Path:
    """Return the path of an output folder's ledger; raise ConfigError if there is none."""
    from ablate.engine.driver_status import resolve_output_folder

    path = resolve_output_folder(out) / "ledger.sqlite"
    if not path.is_file():
        raise ConfigError(
            str(path), "there is no ledger", "Give the output folder of a run as --out"
        )
    return path


def find_trial(records: "Records", prefix: str | None) -> str:
    """Return the trial id (`HASH-SEED`) that begins with `prefix`; if seeds differ, the first one.

    Raises:
        ConfigError: no trial matches, or trials with several hashes do.
    """
    from ablate.ledger import queries

    rows = queries.find_trials_by_prefix(records, prefix) if prefix else []
    ids: list[str] = [row["trial_id"] for row in rows]
    if not ids:
        raise ConfigError(
            "TRIAL", f"no trial's id begins with {prefix or ''!r}", "`ablate trials` lists all ids"
        )
    if len({trial_id.partition("-")[0] for trial_id in ids}) > 1:
        raise ConfigError(
            "TRIAL",
            f"{len(ids)} ids begin with {prefix!r}, for example {ids[0]} and {ids[-1]}",
            "Give more characters of one id",
        )
    return ids[0]


def check_new_file(text: str, option: str) -> Path:
    """Return the path of a file to write; raise ConfigError if it exists."""
    path = expand_user_path(text, option)
    if path.exists():
        raise ConfigError(option, f"{path} exists already", "Name a new file, or remove it")
    return path


@contextmanager
def explain_write_errors(path: Path, option: str) -> Iterator[None]:
    """Convert an OSError in the `with` block to a ConfigError with the option and the path."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            option, f"{path} cannot be written ({error.strerror or error})", "Name another file"
        ) from error
