"""The command line. Nothing heavy is imported before a command runs: `--help` is immediate.

Exit codes: 0 all is done; 1 something failed or is missing, the ledger cannot be written, or a
pilot finds nothing that can run; 2 wrong input, no trial was started; 130 stopped by Ctrl-C, 143 by
SIGTERM, 129 by SIGHUP (the terminal was closed).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ablate.seeds import MAX_SEED, MAX_SEEDS
from ablate.terminal import say, tolerant
from ablate.typed import conceal
from reports.uri import clean
from trainables.errors import ConfigError
from trainables.texts import check_option

if TYPE_CHECKING:
    from ablate.api import Options

LONGEST = 100 * 366 * 86400.0  # seconds
EXIT_CODES = (
    "Exit codes: 0 all is done; 1 something failed or is missing (the same command goes on); "
    "2 wrong input, no trial was started; 130 stopped by Ctrl-C, 143 by SIGTERM."
)
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}


def seconds(text: str, option: str = "--budget") -> float:
    """`2h`, `90m`, `1h30m`, `45` (seconds)."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms]?)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ConfigError(option, repr(text), "a duration such as 2h, 90m or 1h30m")
    found = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if found > LONGEST:
        raise ConfigError(option, repr(text[:40]), "at most 100 years", "Leave it out for no end")
    return found


def budget(text: str) -> float:
    """A duration above zero."""
    found = seconds(text)
    if found == 0:
        raise ConfigError(
            "--budget", repr(text), "more than no time", "To run nothing, give --plan"
        )
    return found


def seed_option(text: str) -> int | tuple[int, ...]:
    """`5` for 0…4, or `0,3,4`."""
    expected = "a number of seeds, or a list such as 0,1,5"
    if not re.fullmatch(r"\d{1,10}(,\d{1,10})*,?", text):
        raise ConfigError("--seeds", repr(text), expected)
    numbers = tuple(int(number) for number in text.strip(",").split(","))
    if "," not in text and not 1 <= numbers[0] <= MAX_SEEDS:
        raise ConfigError(
            "--seeds", repr(text), f"{expected}; 1 to {MAX_SEEDS} of them",
            "For the one seed 0 alone, give 0,",
        )  # fmt: skip
    if len(numbers) > MAX_SEEDS or max(numbers) > MAX_SEED:
        raise ConfigError("--seeds", repr(text), f"at most {MAX_SEEDS} seeds, each ≤ {MAX_SEED}")
    if len(set(numbers)) != len(numbers):
        raise ConfigError("--seeds", repr(text), "each seed once")
    return numbers if "," in text else numbers[0]


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """`--set optimizer.lr=1e-4`, typed as YAML types it."""
    from ablate.yaml_loader import load_text

    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError("--set", repr(pair), "key=value", "As in --set optimizer.lr=1e-4")
        if key in found:
            raise ConfigError(f"--set {key}", "it twice", "each key once", "Remove one")
        found[key] = load_text(value, f"--set {key}").data
    return found


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="ablate",
        description="Tune, ablate and compare deep-metric-learning methods from a YAML file.",
        epilog=f"`python -m ablate.run SPEC …` is `ablate run SPEC …`. {EXIT_CODES}",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run a sweep; what is known already is not run again",
        description="Run a sweep. Stop it with Ctrl-C; the same command goes on.",
        epilog=EXIT_CODES,
    )
    _spec_options(run)
    run.add_argument("--plan", action="store_true", help="show what would run; run nothing")
    run.add_argument(
        "--cell", metavar="STUDY/CELL[@SEED]",
        help="run one cell in this process, without Ray, with its full traceback",
    )  # fmt: skip
    run.add_argument(
        "--budget", metavar="TIME", help="start no new trial after this time: 2h, 90m, 1h30m"
    )
    run.add_argument(
        "--retry-failed", action="store_true", help="run trials again whose failure is recorded"
    )
    run.add_argument(
        "--force", action="store_true",
        help="forget what is known of this sweep's trials, and train them all again",
    )  # fmt: skip
    run.add_argument(
        "--checkpoint-seconds",
        metavar="TIME",
        help="least time between a trial's checkpoints; 0: every epoch (default: 10)",
    )
    run.add_argument("--no-report", action="store_true", help="compile no tables at the end")
    plan = commands.add_parser("plan", help="show what a spec would run; run nothing")
    _spec_options(plan, optional=True)
    plan.add_argument("--schema", action="store_true", help="print the JSON Schema of a spec")
    ledger = commands.add_parser("ledger", help="what an output folder's ledger knows")
    ledger.add_argument(
        "action", nargs="?", choices=("ls", "show", "export", "replay"), default="ls",
        help="ls: counts, sweeps and failures; show TRIAL; export [SWEEP]: a row per trial and "
        "cell; replay [SWEEP]: write to MLflow what it lacks, when no run is under way",
    )  # fmt: skip
    ledger.add_argument(
        "--to", metavar="FILE", help="export: .csv, .jsonl or .parquet (default: CSV, printed)"
    )
    ledger.add_argument("name", nargs="?", help="a trial id or its beginning; a sweep's id or name")
    ledger.add_argument(
        "--rebuild", action="store_true",
        help="replay: move a damaged SQLite store aside, and write every sweep into a fresh one",
    )  # fmt: skip
    _tracking(ledger)
    _out(ledger)
    data = commands.add_parser("data", help="list the data sets; fill the cache")
    data.add_argument("name", nargs="?", help="load this one and describe its splits")
    data.add_argument("--data-root", metavar="DIR", help="folder of class folders")
    report = commands.add_parser("report", help="compile a sweep's tables and figures again")
    report.add_argument("sweep", nargs="?", help="sweep id or name; default: the latest")
    _tracking(report)
    _out(report)
    doctor = commands.add_parser("doctor", help="versions, GPU, disk, and what to repair")
    _out(doctor)
    return top


def _out(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--out", default="runs", metavar="DIR", help="output folder (default: ./runs)"
    )


def _tracking(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tracking-uri", metavar="URI",
        help="MLflow; env:NAME: the URI in this environment variable, where a password is not in "
        "the process list (default: SQLite in --out)",
    )  # fmt: skip


def _spec_options(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    command.add_argument(
        "spec", metavar="SPEC", nargs="?" if optional else None, help="the sweep's YAML file"
    )
    command.add_argument("--dataset", metavar="NAME", help="typefaces, emoji or folder")
    command.add_argument(
        "--data-root", metavar="DIR", help="folder of class folders (implies --dataset folder)"
    )
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
        help="override a field of every trial, as optimizer.lr=1e-4; repeatable",
    )  # fmt: skip
    command.add_argument(
        "--study", action="append", default=[], metavar="NAME", dest="studies",
        help="run only this study and those it is centred on; repeatable",
    )  # fmt: skip
    command.add_argument(
        "--seeds", metavar="N", help="n or a list 0,1,5, for all studies but searches"
    )
    command.add_argument("--device", default="auto", help="auto (default), cpu, cuda or cuda:N")
    command.add_argument(
        "--pilot", action="store_true",
        help="with --plan: time a few steps of each kind of trial that the ledger does not know, "
        "for the estimate of time and memory; it also finds what would end them at once",
    )  # fmt: skip
    command.add_argument(
        "--same-code", action="store_true",
        help="the source of a component has changed and its numbers have not: take what is known "
        "at its REVISION as made by it, from now on",
    )  # fmt: skip
    command.add_argument("--address", metavar="ADDRESS", help="a Ray cluster; auto finds one")
    _tracking(command)
    _out(command)


def options(args: argparse.Namespace) -> Options:
    from ablate.api import Options

    limit = getattr(args, "budget", None)
    interval = getattr(args, "checkpoint_seconds", None)
    return Options(
        out=args.out,
        dataset=args.dataset,
        data_root=args.data_root,
        device=args.device,
        seeds=None if args.seeds is None else seed_option(args.seeds),
        settings=settings(args.settings),
        studies=tuple(args.studies),
        address=args.address,
        budget=None if limit is None else budget(limit),
        retry_failed=getattr(args, "retry_failed", False),
        force=getattr(args, "force", False),
        same_code=args.same_code,
        tracking_uri=args.tracking_uri,
        report=not getattr(args, "no_report", False),
        checkpoint_seconds=seconds("10" if interval is None else interval, "--checkpoint-seconds"),
    )


class Parser(argparse.ArgumentParser):
    """Tells what it does not understand without the passwords in it."""

    def error(self, message: str) -> NoReturn:
        super().error(clean(message))


_SHOWN = {"spec": "SPEC", "name": "NAME", "sweep": "SWEEP", "studies": "--study"}


def _check_texts(args: argparse.Namespace) -> None:
    """That nothing given is empty, or holds what no file name can; `--set` is read as YAML."""
    for name, given in vars(args).items():
        option = _SHOWN.get(name, f"--{name.replace('_', '-')}")
        for text in given if isinstance(given, list) else [given]:
            if isinstance(text, str) and name != "settings":
                check_option(text, option, show=name != "tracking_uri")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    if argv is None:
        conceal()
    tolerant()
    args = parser().parse_args(argv)
    from ablate import commands
    from ablate.schema import LedgerError
    from ablate.tracking import TrackingError
    from reports.errors import ReportError

    try:
        _check_texts(args)
        code: int = getattr(commands, args.command)(args)
    except ConfigError as error:
        say(" ".join(str(error).split()), error=True)
        return 2
    except (LedgerError, ReportError, TrackingError) as error:
        say(error, error=True)
        return 1
    except KeyboardInterrupt:
        say("stopped at once; the same command goes on from what is recorded", error=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # `ablate … | head` is no error
        return 0
    return code
