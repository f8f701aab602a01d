"""Parse the command line and run the command.

A command is a function `add_COMMAND` in a module of this folder, or an entry point of another
package in the group `ablate.commands`. It adds the command's arguments, and sets `run`, a function
of the parsed arguments that returns the exit code. Only the module of the requested command is
imported, and heavy libraries are imported in `run`, so that `--help` is immediate.
"""

import argparse
import atexit
import gc
import json
import sys
import traceback
from collections.abc import Callable, Container, Sequence
from typing import NoReturn

from ablate.cli.options import EXIT_CODES
from trainables.words.errors import ConfigError
from trainables.words.registry import Registry
from trainables.words.secrets import has_secret, redact_all_uris
from trainables.words.terminal import make_streams_tolerant, print_text, to_one_line
from trainables.words.texts import check_option

MENU = {  # command → its module, and what --help says of it
    "demo": (
        "run",
        "Run DDML's ablation on an embedded data set, as `make demo` does: the recipe ddml.",
    ),
    "new": ("new", "Write a first spec from a few options, or copy a recipe."),
    "explain": (
        "explain",
        "Say in plain words what a spec trains and compares, or why a trial exists.",
    ),
    "run": ("run", "Run a sweep; finished trials are reused."),
    "plan": ("run", "Show what a spec would run."),
    "controls": ("run", "Run known effects and nulls around the trial of a spec."),
    "cells": ("remote", "Write the trials that can start now to a file that any machine can run."),
    "submit": (
        "remote",
        "Run a sweep by array jobs of Slurm, or by processes of this machine, without Ray.",
    ),
    "status": (
        "watch",
        "Show what runs in an output folder: studies, nodes, trials, time left, failures.",
    ),
    "stop": ("watch", "Stop the runs of an output folder cleanly, like Ctrl-C."),
    "trials": ("results", "List the trials of a sweep."),
    "best": (
        "results",
        "Print the best configuration as a spec, with its metrics and the path of its model.",
    ),
    "logs": ("watch", "Print the log of a trial."),
    "prune": ("upkeep", "Remove checkpoints and weights that are no longer needed."),
    "ledger": ("upkeep", "Show, export or import the results in an output folder's ledger."),
    "data": ("data", "List the data sets on this machine, or check one."),
    "report": ("results", "Compile the tables and figures of a sweep again."),
    "ui": ("ui", "Serve MLflow's pages and the reports on this machine's loopback address."),
    "diff": ("results", "Compare two sweeps: cells side by side, settings, versions."),
    "judge": ("judge", "Judge runs that other programs made: a CSV, an MLflow store, …"),
    "evaluate": ("models", "Evaluate a trained model, or a backbone alone, on data sets."),
    "embed": ("models", "Embed a folder of pictures with a trained model."),
    "neighbours": ("models", "Write pages of pictures with their nearest neighbours."),
    "backbones": (
        "models",
        "List the papers' backbones and whether their weights are on this machine.",
    ),
    "doctor": ("upkeep", "Show versions, GPU and disk, and what needs repair."),
}
COMMANDS: Registry[Callable[[argparse.ArgumentParser], None]] = Registry(
    "commands",
    index={name: f"ablate.cli.{module}:add_{name}" for name, (module, _) in MENU.items()},
)
SECRET_OPTIONS = ("tracking_uri", "storage")  # may contain a password
OPTION_NAMES = {
    "spec": "SPEC",
    "name": "NAME",
    "sweep": "SWEEP",
    "studies": "--study",
    "trackers": "--tracker",
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors contain no password."""

    def error(self, message: str) -> NoReturn:
        super().error(redact_all_uris(message))


def build_parser(commands: Container[str] = COMMANDS) -> Parser:
    """Build the parser of all commands; only `commands` get arguments, since imports take time."""
    top = Parser(
        prog="ablate",
        description="Tune, ablate and compare deep-metric-learning methods from a YAML file.",
        epilog=f"`python -m ablate.run SPEC …` is `ablate run SPEC …`. {EXIT_CODES}",
    )
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        _, summary = MENU.get(name, ("", None))  # other packages describe theirs
        command = subparsers.add_parser(name, help=summary, description=summary)
        if name in commands:
            COMMANDS[name](command)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names, print its errors, and return the exit code."""
    if argv is None:
        prepare_process()
        argv = sys.argv[1:]
    make_streams_tolerant()
    args = build_parser(argv[:1]).parse_args(argv)
    from ablate.ledger.schema import LedgerError
    from ablate.tracking.tracker import TrackingError
    from trainables.words.errors import ReportError

    try:
        check_arguments(args)
        code: int = args.run(args)
    except ConfigError as error:
        print_error(args, to_one_line(error), error.fault, error.path, error.remedy)
        return 2
    except (LedgerError, ReportError, TrackingError, ImportError, MemoryError) as error:
        text = str(error)
        if isinstance(error, ImportError | MemoryError):
            place = traceback.extract_tb(error.__traceback__)[-1]  # where it was raised
            fault = f"{place.filename}:{place.lineno}: {to_one_line(text) or 'the memory is full'}"
            if isinstance(error, MemoryError):
                remedy = "Free memory."
            else:  # a library, or a component of the user's, cannot be imported
                remedy = "Install the library that is missing, or correct this import."
            text = f"{fault}. {remedy}"
        print_error(args, text, text)
        return 1
    except KeyboardInterrupt:
        print_text("Stopped at once. The same command continues from what is recorded.", error=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # else Python reports at its end that stdout (`… | head`) is closed
        return 0
    return code


def print_error(
    args: argparse.Namespace, text: str, fault: str, field: str = "", remedy: str = ""
) -> None:
    """Print an error on standard error: its text, or with --json its parts as JSON."""
    if getattr(args, "json", False):
        parts = {"error": fault, "field": field, "remedy": remedy}
        text = json.dumps(parts, ensure_ascii=False)
    print_text(text, error=True)


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse arguments that are empty, contain a password, or cannot be the name of a file.

    `--set` (`args.settings`) may contain any text, because it is YAML.
    """
    for name, value in vars(args).items():
        option = OPTION_NAMES.get(name, f"--{name.replace('_', '-')}")
        for text in value if isinstance(value, list) else [value]:
            if not isinstance(text, str) or name == "settings":
                continue
            check_option(text, option, show=name not in SECRET_OPTIONS)
            if name in SECRET_OPTIONS and has_secret(text):
                raise ConfigError(
                    option,
                    "this URI has a password, which every user of this machine can read on a "
                    "command line",
                    f"Export NAME=URI, and give {option} env:NAME",
                )


def prepare_process() -> None:
    """Skip the garbage collection at the end of this process, which takes half a second.

    `gc.freeze` hides all objects from the collector. It is not called if a compiled network has
    loaded triton, because triton looks through all objects when the process ends.
    """
    atexit.register(lambda: None if "triton" in sys.modules else gc.freeze())
