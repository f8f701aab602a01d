"""`ablate best`: the best configuration of a study, as YAML that runs."""

from __future__ import annotations

import argparse

from ablate.cli.locate import locate_ledger
from ablate.cli.options import add_out
from ablate.ledger.queries import find_sweep
from ablate.ledger.records import Records
from ablate.ledger.results import find_best
from ablate.values.terminal import print_text


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Print the best configuration of a study as a spec that `ablate run` takes. Comments in "
        "it give the metrics, the path of the model and ready commands. The best cell is that of "
        "the highest mean of the study's objective."
    )
    command.add_argument("sweep", nargs="?", help="sweep id or name; default: the latest")
    command.add_argument("study", nargs="?", help="default: all studies, by the sweep's objective")
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Print the best configuration of a study as YAML that runs; comments say how to use it."""
    path = locate_ledger(args.out)
    with Records(path) as records:
        sweep_id = find_sweep(records, args.sweep, "SWEEP")
        print_text(find_best(records, sweep_id, args.study, path.parent).yaml, end="")
    return 0
