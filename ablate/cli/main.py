"""The command line. Nothing heavy is imported before a command runs: `--help` is immediate.

Exit codes: 0 all is done; 1 something failed or is missing, the ledger cannot be written, or a
pilot finds nothing that can run; 2 wrong input, no trial was started; 130 stopped by Ctrl-C, 143 by
SIGTERM, 129 by SIGHUP (the terminal was closed).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from ablate.cli.parser import parser
from ablate.cli.startup import end_quickly
from ablate.tracking.typed import conceal
from ablate.values.terminal import one_line, say, tolerant
from trainables.errors import ConfigError
from trainables.machine.texts import check_option

_SECRET = ("tracking_uri", "storage")  # may hold a password
_SHOWN = {"spec": "SPEC", "name": "NAME", "sweep": "SWEEP", "studies": "--study"}


def _check_texts(args: argparse.Namespace) -> None:
    """That nothing given is empty, or holds what no file name can; `--set` is read as YAML."""
    for name, value in vars(args).items():
        option = _SHOWN.get(name, f"--{name.replace('_', '-')}")
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and name != "settings":
                check_option(text, option, show=name not in _SECRET)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    if argv is None:
        conceal()
        end_quickly()
    tolerant()
    args = parser().parse_args(argv)
    from ablate.ledger.schema import LedgerError
    from ablate.tracking.tracker import TrackingError
    from reports.errors import ReportError

    try:
        _check_texts(args)
        module, _, name = args.handler.partition(":")
        code: int = getattr(import_module(f"ablate.cli.{module}"), name)(args)
    except ConfigError as error:
        say(one_line(error), error=True)
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
