"""`ablate logs`: print the log of a trial."""

import argparse
import time
from io import TextIOWrapper

from ablate.cli.locate import find_trial, locate_ledger
from ablate.cli.options import add_out
from ablate.ledger.records import Records
from ablate.values.terminal import print_text
from trainables.core.runtime import LOG, TRIALS, locate_trial_folder
from trainables.errors import ConfigError
from trainables.machine.files import open_regular

FOLLOW_SECONDS = 0.5
PIECE = 2**16  # characters printed at once


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("trial", metavar="TRIAL", help="The trial id or its beginning.")
    text = "Follow the log until the trial ends."
    command.add_argument("--follow", action="store_true", help=text)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Print a trial's log; with `--follow` print what is added until the trial ends."""
    ledger = locate_ledger(args.out)
    with Records(ledger) as records:
        trial_id = find_trial(records, args.trial)
        path = locate_trial_folder(ledger.parent / TRIALS, trial_id) / LOG
        if not path.is_file():
            status = (records.get_trial(trial_id) or {}).get("status")
            raise ConfigError(
                str(path),
                f"the trial is {status} and has no log",
                f"`ablate ledger show {trial_id}` prints its results",
            )
        try:
            log = open_regular(path)
        except OSError as error:
            raise ConfigError(
                str(path),
                f"the log cannot be read ({error.strerror})",
                "Change the log's permissions",
            ) from error
        with TextIOWrapper(log, "utf-8", errors="replace", newline="\n") as text:
            ends_line = True
            while True:
                records.check_file()
                # the status is read before the log, so that the end of the log is printed, too
                is_running = (records.get_trial(trial_id) or {}).get("status") == "running"
                for piece in iter(lambda: text.read(PIECE), ""):  # until nothing is left
                    print_text(piece, end="", flush=True)
                    ends_line = piece.endswith("\n")
                if not (args.follow and is_running):
                    break
                time.sleep(FOLLOW_SECONDS)
            if not ends_line:
                print_text("")
    return 0
