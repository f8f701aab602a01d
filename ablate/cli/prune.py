"""`ablate prune`: remove checkpoints of finished trials, and weights that no report names.

Logs, configurations, results and the ledger always stay, and so do files that another process uses.
"""

import argparse
import shutil
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from ablate.cli.locate import locate_ledger
from ablate.cli.options import add_out, add_sweep_name
from ablate.engine.driver_status import list_drivers
from ablate.ledger import queries
from ablate.ledger.ledger import Ledger, is_held
from ablate.ledger.owner import Owner
from ablate.ledger.records import Records
from ablate.results import read_frame
from ablate.values.terminal import print_text
from reports.best import find_best_cell
from reports.frame import list_objectives
from trainables.core.trial_folder import CHECKPOINTS, EXPORT, LOCK, TRIALS, locate_trial_folder
from trainables.errors import ConfigError


class Removable(NamedTuple):
    """A file or folder of a finished trial that is no longer needed, and its size in bytes."""

    trial_id: str
    path: Path
    size: int


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "List checkpoints and weights that are no longer needed; delete them with --yes. Files of "
        "running and resumable trials stay, and so do the weights of each study's best cell and "
        "of unfinished sweeps."
    )
    add_sweep_name(command, "all trials")
    text = "Remove the files instead of listing them."
    command.add_argument("--yes", action="store_true", help=text)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """List the files that are no longer needed, or remove them (`--yes`); return 1 on a failure."""
    path = locate_ledger(args.out)
    if (trials := path.parent / TRIALS).is_symlink():
        raise ConfigError(
            str(trials),
            "this is a symbolic link, and nothing outside of the output folder is removed",
            "Move the trials here, or link the whole output folder",
        )
    with Ledger(path) as ledger:
        files, notes = find_removable_files(ledger, path.parent, args.sweep)
        # say how much space is gained
        verb = "frees" if args.yes else "would free"
        lines = [] if files else [f"there is nothing to remove in {path.parent}"]
        for name, kind in ((CHECKPOINTS, "checkpoints"), (EXPORT, "weights")):
            if sizes := [file.size for file in files if file.path.name == name]:
                size = f"{sum(sizes) / 1e6:,.1f} MB"
                lines.append(f"removing {kind} of {len(sizes)} trials {verb} {size}")
        print_text("\n".join([*lines, *notes]))
        if not files:
            return 0
        if not args.yes:
            print_text("\n".join(f"  {file.path}" for file in files))
            print_text(
                "Nothing is removed yet. A trial without weights must train again before other "
                "splits or metrics can be evaluated. Give --yes to remove these files."
            )
            return 0
        # remove the files
        freed, failures = _remove_files(ledger, files)
    print_text(f"removing the files freed {freed / 1e6:,.1f} MB")
    for failure in failures:
        print_text(failure, error=True)
    if any(file.path.name == EXPORT for file in files):
        print_text("Reports link to these weights. `ablate report` leaves the links out.")
    return 1 if failures else 0


def find_removable_files(
    records: Records, out: Path, sweep: str | None
) -> tuple[list[Removable], list[str]]:
    """Return the files that can be removed, and notes on unfinished sweeps, whose weights stay.

    Args:
        sweep: the sweep whose trials are looked through; None stands for all trials.
    """
    if sweep is None:
        rows = queries.list_trials(records)
    else:
        rows = queries.list_sweep_trials(records, queries.find_sweep(records, sweep, "SWEEP"))
    trial_ids = {row["trial_id"] for row in rows}
    # keep weights of best cells, and of sweeps that may evaluate their trials further
    needed, notes = _find_best_trials(records), []
    running_sweeps = {driver.sweep_id for driver in list_drivers(out) if driver.alive}
    for sweep_row in queries.list_sweeps(records):
        sweep_id = sweep_row["sweep_id"]
        progress = queries.count_progress(records, sweep_id)
        is_unfinished = any(n["done"] + n["failed"] + n["stopped"] < n["size"] for n in progress)
        if is_unfinished or sweep_id in running_sweeps:
            sweep_trials = {row["trial_id"] for row in records.list_cells(sweep_id)}
            needed |= sweep_trials
            if is_unfinished and sweep_trials & trial_ids:
                name = f"{sweep_row['name']} ({sweep_id})"
                notes.append(f"sweep {name} is not finished: its weights stay")
    removable = []
    for row in rows:
        trial_id = row["trial_id"]
        if row["status"] not in ("done", "failed") or is_held(row):  # a driver has claimed it
            continue
        # EXPORT: the file of weights
        for name in (CHECKPOINTS,) if trial_id in needed else (CHECKPOINTS, EXPORT):
            path = locate_trial_folder(out / TRIALS, trial_id) / name
            if path.exists() and not path.is_symlink():
                files = path.rglob("*") if path.is_dir() else [path]
                size = sum(file.lstat().st_size for file in files if file.is_file())
                removable.append(Removable(trial_id, path, size))
    return removable, notes


def _find_best_trials(records: Records) -> set[str]:
    """Return the ids of all trials of each study's best cell, by all and by each objective.

    Reports name the weights of these trials.
    """
    best: set[str] = set()
    for sweep in queries.list_sweeps(records):
        frame = read_frame(records, sweep["sweep_id"])
        for study, cells in frame.cells.groupby("study"):
            objectives = list_objectives(frame.document, study)
            for order in (objectives, *([objective] for objective in objectives)):
                if (chosen := find_best_cell(cells, order)) is not None:
                    best |= {*cells["trial_id"][cells["cell"] == chosen.cell]}
    return best


def _remove_files(ledger: Ledger, files: list[Removable]) -> tuple[int, list[str]]:
    """Remove files; return the number of bytes freed, and a line for each failure.

    Each trial is claimed and its folder locked meanwhile, so that no driver runs the trial.
    """
    owner, freed, failures = Owner.from_this_process(), 0, list[str]()
    for trial_id, path, size in files:
        if not ledger.hold(trial_id, owner):
            failures.append(f"{trial_id}: no file was removed, because a run has claimed the trial")
            continue
        try:
            with FileLock(path.parent / LOCK, timeout=0):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            freed += size
        except Timeout:
            failures.append(f"{trial_id}: no file was removed, because its folder is in use")
        except OSError as error:
            failures.append(f"{path} could not be removed ({error})")
        finally:
            ledger.release_hold(trial_id, owner)
    return freed, failures
