"""`ablate ledger`: what an output folder's ledger knows, and what may be done with it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ablate.cli.locate import find_trial, locate_ledger
from ablate.cli.options import add_out, add_tracking
from ablate.ledger import queries
from ablate.ledger.records import Records
from ablate.values.terminal import print_text, to_one_line
from trainables.core.trial_folder import TRIALS, locate_trial_folder


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "action",
        nargs="?",
        choices=("ls", "show", "export", "replay", "import"),
        default="ls",
        help="`ls` counts trials and lists sweeps and failures; `show TRIAL` prints everything "
        "about a trial as JSON; `export [SWEEP]` writes a row for each cell and seed of a sweep, "
        "the latest without SWEEP; `replay [SWEEP]` writes to MLflow what it lacks (while no run "
        "is active); `import DIR` records the results of a batch (`ablate cells`).",
    )
    command.add_argument(
        "--to",
        metavar="FILE",
        help="For `export`: a .csv file (default: print CSV).",
    )
    command.add_argument(
        "name",
        nargs="?",
        help="A trial id or its beginning, a sweep by id or name, or the folder of a batch.",
    )
    command.add_argument(
        "--json",
        action="store_true",
        help="For `show`: has no effect, because it prints JSON in any case.",
    )
    add_tracking(command)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    path = locate_ledger(args.out)
    if args.action == "replay":
        return _replay_sweeps(path, args)
    if args.action == "import":
        from ablate.cli.cells import import_batch_folder

        return import_batch_folder(args, path.parent)
    if args.action == "export":
        from ablate.ledger.results import export_table

        export_table(path, args.name, None if args.to is None else Path(args.to))
        return 0
    with Records(path) as records:
        if args.action == "ls":
            for row in queries.count_statuses(records):
                print_text(
                    f"{row['status']}: {row['n']} trials, {row['seconds']:.0f} s of training"
                )
            for row in queries.list_sweeps(records):
                print_text(f"sweep {row['sweep_id']} {row['name']}: {row['n']} cells")
            for row in queries.list_reasons(records):
                print_text(f"{row['status']} {row['trial_id']}: {to_one_line(row['reason'])}")
            return 0
        trial_id = find_trial(records, args.name)
        row = records.get_trial(trial_id) or {}
        # Who looks at one trial mostly asks why it has no result: that first, details after it.
        first = {key: row.get(key) for key in ("trial_id", "status", "reason")}
        details = {
            "cells": [
                queries.format_cell_address(cell)
                for cell in queries.list_cells_of_trial(records, trial_id)
            ],
            "folder": str(locate_trial_folder(path.parent / TRIALS, trial_id)),
            "evaluations": records.get_evaluations(trial_id),
            "source": records.get_source(row.get("source"))
            or "unknown: older than sources are kept",
        }
        print_text(json.dumps(first | row | details, indent=1, default=str))
    return 0


def _replay_sweeps(path: Path, args: argparse.Namespace) -> int:
    """Write every sweep of the ledger, or the named one, into the MLflow store."""
    from ablate.api import Options
    from ablate.ledger.ledger import Ledger
    from ablate.tracking.sync import replay_all

    store = Options(out=args.out, tracking_uri=args.tracking_uri).store
    store.check_usable()
    with Ledger(path) as facts:
        if args.name is None:
            sweep_ids = [row["sweep_id"] for row in queries.list_sweeps(facts)]
        else:
            sweep_ids = [queries.find_sweep(facts, args.name, "SWEEP")]
    refused = replay_all(path, store, sweep_ids)
    for trial_id, reason in refused.items():
        print_text(f"refused {trial_id}: {reason}", error=True)
    return 1 if refused else 0
