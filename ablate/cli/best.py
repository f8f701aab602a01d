"""`ablate best`: print the best configuration of a study as a spec."""

import argparse

from ablate.cli.locate import locate_ledger
from ablate.cli.options import add_out, add_sweep_name
from ablate.ledger.queries import find_sweep
from ablate.ledger.records import Records
from ablate.ledger.results import find_best
from trainables.words.terminal import print_text


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_sweep_name(command)
    text = "The study (default: all studies, compared by the sweep's objective)."
    command.add_argument("study", nargs="?", help=text)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Print the best configuration of a study, or of all studies, as a spec in YAML."""
    path = locate_ledger(args.out)
    with Records(path) as records:
        sweep_id = find_sweep(records, args.sweep, "SWEEP")
        print_text(find_best(records, sweep_id, args.study, path.parent).yaml, end="")
    return 0
