"""`ablate best`: print the best configuration of a study as a spec."""

import argparse

from ablate.cli.locate import locate_ledger
from ablate.cli.options import add_out, add_sweep_name
from ablate.ledger.queries import find_sweep
from ablate.ledger.records import Records
from ablate.results import find_best, read_frame
from ablate.values.terminal import print_text


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_sweep_name(command)
    text = "The study (default: all studies, compared by the sweep's objective)."
    command.add_argument("study", nargs="?", help=text)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Print the best configuration of a study, or of all studies, as a spec in YAML."""
    path = locate_ledger(args.out)
    with Records(path) as records:
        frame = read_frame(records, find_sweep(records, args.sweep, "SWEEP"))
    print_text(find_best(frame, args.study, path.parent).yaml, end="")
    return 0
