"""`ablate ledger`: show, export, replay or extend the ledger of an output folder."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate.cli.locate import find_trial, locate_ledger
from ablate.cli.options import add_out, add_trackers, add_tracking
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
        help="`ls` counts trials and lists sweeps and failures; `show TRIAL` prints a trial as "
        "JSON; `export [SWEEP]` writes a row for each cell and seed of a sweep (default: the "
        "latest); `replay [SWEEP]` writes to MLflow, or to the trackers of --tracker, what they "
        "lack (not during `ablate run`); `import DIR` records the results of a batch "
        "(`ablate cells`).",
    )
    text = "For `export`: the .csv file to write (default: print CSV)."
    command.add_argument("--to", metavar="FILE", help=text)
    text = "A sweep, a batch's folder, or the beginning of a trial's id."
    command.add_argument("name", nargs="?", help=text)
    add_tracking(command)
    add_trackers(command)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Carry out `args.action` on the ledger: ls, show, export, replay or import."""
    path = locate_ledger(args.out)
    if args.action == "replay":
        return _replay_sweeps(path, args)
    if args.action == "import":
        from ablate.cli.cells import import_batch_folder

        return import_batch_folder(args, path.parent)
    if args.action == "export":
        from ablate.results import export_table

        export_table(path, args.name, None if args.to is None else Path(args.to))
        return 0
    with Records(path) as records:
        if args.action == "ls":
            _print_summary(records)
        else:
            trial_id = find_trial(records, args.name)
            details = _collect_trial_details(records, path.parent, trial_id)
            print_text(json.dumps(details, indent=1, default=str))
    return 0


def _print_summary(records: Records) -> None:
    """Print the number of trials by status, the sweeps, and the reasons of failures."""
    for row in queries.count_statuses(records):
        print_text(f"{row['status']}: {row['n']} trials, {row['seconds']:.0f} s of training")
    for row in queries.list_sweeps(records):
        print_text(f"sweep {row['sweep_id']} {row['name']}: {row['n']} cells")
    for row in queries.list_reasons(records):
        print_text(f"{row['status']} {row['trial_id']}: {to_one_line(row['reason'])}")


def _collect_trial_details(records: Records, out: Path, trial_id: str) -> dict[str, Any]:
    """Return all that the ledger has on a trial; id, status and reason of failure come first."""
    row = records.get_trial(trial_id) or {}
    cells = queries.list_cells_of_trial(records, trial_id)
    return {
        **{key: row.get(key) for key in ("trial_id", "status", "reason")},
        **row,
        "cells": [queries.format_cell_address(cell) for cell in cells],
        "folder": str(locate_trial_folder(out / TRIALS, trial_id)),
        "evaluations": records.get_evaluations(trial_id),
        "source": records.get_source(row.get("source")) or "unknown: no source code was recorded",
    }


def _replay_sweeps(path: Path, args: argparse.Namespace) -> int:
    """Write one or all sweeps of the ledger to trackers; return 1 if MLflow refuses a trial.

    Reports that exist are compiled again after MLflow was written, so that MLflow has them too.
    """
    from ablate.api import Options
    from ablate.ledger.ledger import Ledger
    from ablate.plan.resolve import list_default_settings  # late, because it imports torch
    from ablate.tracking.base import Tracker, build_trackers
    from ablate.tracking.sync import MlflowTracker
    from ablate.tracking.tracker import replay
    from ablate.tracking.views import compile_report

    options = Options(out=args.out, tracking_uri=args.tracking_uri)
    store, remedy = options.store, options.store.format_command("ledger replay")
    if not args.trackers:
        store.check_usable()
    with Ledger(path) as ledger:
        if args.name is None:
            sweep_ids = [row["sweep_id"] for row in queries.list_sweeps(ledger)]
        else:
            sweep_ids = [queries.find_sweep(ledger, args.name, "SWEEP")]
    trackers: Sequence[Tracker] = build_trackers(args.trackers, options.folder)
    if not trackers:
        trackers = [MlflowTracker(store.uri, remedy, list_default_settings())]
    refused: dict[str, str] = {}
    for sweep_id in sweep_ids:
        for tracker in trackers:
            count, refused_trials = replay(path, tracker, sweep_id)
            refused |= refused_trials
            print_text(f"sweep {sweep_id}: {count} trials are in {tracker.title}")
        reports = (options.folder / "reports").glob(f"*-{sweep_id}/report.html")
        if not args.trackers and any(reports):
            compile_report(store, sweep_id)
    for trial_id, reason in refused.items():
        print_text(f"MLflow refused the trial {trial_id}: {reason}", error=True)
    return 1 if refused else 0
