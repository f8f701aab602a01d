"""`ablate logs`: print the log of a trial."""

from __future__ import annotations

import argparse
import time
from collections import deque
from io import TextIOWrapper

from ablate.cli.locate import find_trial, locate_ledger
from ablate.cli.options import add_out, parse_positive
from ablate.ledger.records import Records
from ablate.values.terminal import print_text
from trainables.core.trial_folder import TRIALS, TrialFolder
from trainables.errors import ConfigError
from trainables.machine.files import open_regular

FOLLOW_SECONDS = 0.5
MAX_LINE_LENGTH = 2**16  # characters; a longer line counts as several


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("trial", metavar="TRIAL", help="The trial id or its beginning.")
    command.add_argument(
        "--lines", type=parse_positive, metavar="N", help="Print only the last N lines."
    )
    command.add_argument(
        "--follow", action="store_true", help="Follow the log until the trial ends."
    )
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Print a trial's log; with `--follow` print what is added until the trial ends."""
    ledger = locate_ledger(args.out)
    with Records(ledger) as records:
        trial_id = find_trial(records, args.trial)
        path = TrialFolder.locate(ledger.parent / TRIALS, trial_id).log
        if not path.is_file():
            status = (records.get_trial(trial_id) or {}).get("status")
            remedy = f"`ablate ledger show {trial_id}` prints its results."
            raise ConfigError(str(path), f"the trial is {status} and has no log. {remedy}")
        try:
            log = open_regular(path)
        except OSError as error:
            fault = f"it cannot be read ({error.strerror}). Change its permissions."
            raise ConfigError(str(path), fault) from error
        with TextIOWrapper(log, "utf-8", errors="replace", newline="\n") as text:
            last_line, n_lines = "\n", args.lines
            while True:
                # the status is read before the log, so that the last lines are printed, too
                is_running = (records.get_trial(trial_id) or {}).get("status") == "running"
                lines = iter(lambda: text.readline(MAX_LINE_LENGTH), "")
                for last_line in deque(lines, n_lines) if n_lines else lines:
                    print_text(last_line, end="", flush=True)
                if not (args.follow and is_running):
                    break
                n_lines = None
                time.sleep(FOLLOW_SECONDS)
            if not last_line.endswith("\n"):
                print_text("")
    return 0
