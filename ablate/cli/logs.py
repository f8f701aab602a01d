"""`ablate logs`: what a trial wrote."""

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
LONGEST_LINE = 2**16  # characters; a longer line counts as several


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
    """Print a trial's log; with `--follow` until its trial is no longer under way."""
    ledger = locate_ledger(args.out)
    with Records(ledger) as records:
        trial = find_trial(records, args.trial)
        file = TrialFolder.locate(ledger.parent / TRIALS, trial).log
        if not file.is_file():
            status = (records.get_trial(trial) or {}).get("status")
            remedy = f"`ablate ledger show {trial}` tells what is known of it"
            raise ConfigError(str(file), f"no log, of a trial that is {status}: {remedy}")
        try:
            log = open_regular(file)
        except OSError as error:
            raise ConfigError(str(file), f"it cannot be read ({error.strerror})") from error
        with TextIOWrapper(log, "utf-8", errors="replace", newline="\n") as text:
            last, most = "\n", args.lines
            while True:
                under_way = (records.get_trial(trial) or {}).get("status") == "running"
                lines = iter(lambda: text.readline(LONGEST_LINE), "")
                for last in deque(lines, most) if most else lines:
                    print_text(last, end="", flush=True)
                if not (args.follow and under_way):
                    break
                most = None
                time.sleep(FOLLOW_SECONDS)
            if not last.endswith("\n"):
                print_text("")
    return 0
