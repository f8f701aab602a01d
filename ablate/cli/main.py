"""The command line: one module a command, `ablate/cli/COMMAND.py`.

Each has `add_arguments(command)` and `run(args)`, which returns the exit code. The module of the
command that was typed is imported, and of no other: `ablate --help` is immediate. Heavy libraries
are imported where a command runs, so that its own `--help` is, too.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import NoReturn

from ablate.cli.options import EXIT_CODES
from ablate.values.terminal import make_streams_tolerant, print_text, to_one_line
from reports.uri import has_secret, redact_all_uris
from trainables.errors import ConfigError
from trainables.machine.texts import check_option

COMMANDS = {
    "new": "Write a first spec from a few options.",
    "run": "Run a sweep; finished trials are reused.",
    "plan": "Show what a spec would run.",
    "controls": "Run known effects and nulls around the trial of a spec.",
    "cells": "Write the trials that can start now to a file that any machine can run.",
    "status": ("Show what runs in an output folder: studies, nodes, trials, time left, failures."),
    "stop": "Stop the runs of an output folder cleanly, like Ctrl-C.",
    "trials": "List the trials of a sweep.",
    "best": ("Print the best configuration as a spec, with its metrics and the path of its model."),
    "logs": "Print the log of a trial.",
    "prune": "Remove checkpoints and weights that are no longer needed.",
    "ledger": "Show, export or import the results in an output folder's ledger.",
    "data": "List the data sets on this machine, or check one.",
    "report": "Compile the tables and figures of a sweep again.",
    "diff": "Compare two sweeps: cells side by side, settings, versions.",
    "embed": "Embed a folder of pictures with a trained model.",
    "neighbours": "Write pages of pictures with their nearest neighbours.",
    "backbones": "List the papers' backbones and whether their weights are on this machine.",
    "doctor": "Show versions, GPU and disk, and what needs repair.",
}
REMOVE_FIRST = "remove what is there first, or name another place by --to"
# command → removed word ("": the command itself) → what to do instead
REMOVED: dict[str, dict[str, str]] = {
    "export": {"": "`ablate ledger export` writes a table"},
    "data": {
        "push": "copy the data set to the nodes, or to a folder that they share, and name it in "
        "data.root",
        "--sheet": "look at the images themselves; `ablate data check` names those that are bad",
    },
    "backbones": dict.fromkeys(
        ("--file", "--save"), "give the file as backbone.weights of a spec, whose plan checks it"
    ),
    "ledger": {
        "--rebuild": "move mlflow.db and the files mlflow.db-* away, and replay without it",
        "--same-code": "import without it, and give it to `ablate run`",
    },
    "new": {"--replace": REMOVE_FIRST},
    "embed": {"--replace": REMOVE_FIRST},
    "neighbours": {"--replace": REMOVE_FIRST},
    "prune": {"--keep": "the weights of each study's best cell stay; leave the option out"},
    "trials": {"--failed": "give --status failed"},
}
_SECRET = ("tracking_uri", "storage")  # may hold a password
_SHOWN = {"spec": "SPEC", "name": "NAME", "sweep": "SWEEP", "studies": "--study"}


class Parser(argparse.ArgumentParser):
    """A parser that repeats no password of what it does not understand."""

    def error(self, message: str) -> NoReturn:
        super().error(redact_all_uris(message))


def build_parser(commands: Collection[str] = COMMANDS) -> Parser:
    """Build the parser, with the arguments of these commands."""
    top = Parser(
        prog="ablate",
        description="Tune, ablate and compare deep-metric-learning methods from a YAML file.",
        epilog=f"`python -m ablate.run SPEC …` is `ablate run SPEC …`. {EXIT_CODES}",
    )
    below = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = below.add_parser(name, help=summary)
        if name in commands:
            import_module(f"ablate.cli.{name}").add_arguments(command)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code (`EXIT_CODES`; 129: by SIGHUP, a closed terminal)."""
    if argv is None:
        prepare_process()
        argv = sys.argv[1:]
    make_streams_tolerant()
    command = argv[0] if argv else ""
    for removed, remedy in REMOVED.get(command, {}).items():
        if removed in ("", *argv):
            name = f"ablate {command} {removed}".strip()
            print_text(f"`{name}` was removed in version 0.2.0: {remedy}", error=True)
            return 2
    args = build_parser(argv[:1]).parse_args(argv)
    from ablate.ledger.schema import LedgerError
    from ablate.tracking.tracker import TrackingError
    from reports.errors import ReportError

    try:
        # nothing given is empty, holds a password, or what no file name can; `--set` is YAML
        for name, value in vars(args).items():
            option = _SHOWN.get(name, f"--{name.replace('_', '-')}")
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str) and name != "settings":
                    check_option(text, option, show=name not in _SECRET)
                    if name in _SECRET and has_secret(text):
                        raise ConfigError(
                            option,
                            "it has a password, which every user of this machine can read on a "
                            f"command line: export NAME=URI, and give {option} env:NAME",
                        )
        code: int = import_module(f"ablate.cli.{args.command}").run(args)
    except ConfigError as error:
        print_text(to_one_line(error), error=True)
        return 2
    except (LedgerError, ReportError, TrackingError) as error:
        print_text(error, error=True)
        return 1
    except KeyboardInterrupt:
        print_text("stopped at once; the same command goes on from what is recorded", error=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # `ablate … | head` is no error
        return 0
    return code


def prepare_process() -> None:
    """End quickly; whoever calls `main` from Python keeps a process as it is.

    A search for garbage at the end takes longer than many a plan. triton, which comes with a
    compiled network, looks through all objects itself.
    """
    atexit.register(lambda: None if "triton" in sys.modules else gc.freeze())
