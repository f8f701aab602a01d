"""Look after an output folder and the installation: `ablate ledger`, `prune`, `doctor`."""

import argparse
import json
import platform
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from ablate.cli.options import (
    add_json,
    add_out,
    add_sweep_name,
    add_trackers,
    add_tracking,
    find_trial,
    locate_ledger,
)
from ablate.engine.driver_status import list_drivers, resolve_output_folder
from ablate.ledger import queries
from ablate.ledger.ledger import Ledger, Owner, is_held
from ablate.ledger.records import Records
from ablate.ledger.schema import LedgerError
from ablate.results import read_frame
from ablate.tracking.store import Store
from reports.best import find_best_cell
from reports.frame import list_objectives
from trainables.core.runtime import CHECKPOINTS, EXPORT, LOCK, TRIALS, locate_trial_folder
from trainables.data.cache import locate_default_cache
from trainables.machine.processes import count_cores
from trainables.words.databases import find_damage
from trainables.words.environment import build_public_environment
from trainables.words.errors import ConfigError
from trainables.words.terminal import print_text, to_one_line

PACKAGES = (
    *("torch", "torchvision", "timm", "ray", "optuna", "mlflow", "numpy", "pandas"),
    *("pydantic", "pyarrow", "matplotlib"),
)
FREE_GIB = 2.0
# This runs in a process of its own: torch and torchvision must be built for each other, and the
# import of a pair that is not would leave half-registered operators in this process.
GPUS = """
import torch, torchvision, timm
print(*(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())), sep=", ")
"""


class Removable(NamedTuple):
    """A file or folder of a finished trial that is no longer needed, and its size in bytes."""

    trial_id: str
    path: Path
    size: int


class Finding(NamedTuple):
    """The result of one check; the text of a bad one ends with the remedy."""

    ok: bool
    text: str


def add_ledger(command: argparse.ArgumentParser) -> None:
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
    command.add_argument(
        "--to", metavar="FILE", help="For `export`: the .csv file to write (default: print CSV)."
    )
    command.add_argument(
        "name", nargs="?", help="A sweep, a batch's folder, or the beginning of a trial's id."
    )
    add_tracking(command)
    add_trackers(command)
    add_out(command)
    command.set_defaults(run=run_ledger)


def run_ledger(args: argparse.Namespace) -> int:
    """Carry out `args.action` on the ledger: ls, show, export, replay or import."""
    path = locate_ledger(args.out)
    if args.action == "replay":
        return _replay_sweeps(path, args)
    if args.action == "import":
        from ablate.cli.remote import import_batch_folder

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
    from ablate.plan.resolve import list_default_settings  # late, because it imports torch
    from ablate.tracking.sync import MlflowTracker
    from ablate.tracking.tracker import Tracker, build_trackers, replay
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


def add_prune(command: argparse.ArgumentParser) -> None:
    command.description = (
        "List checkpoints and weights that are no longer needed; delete them with --yes. Files of "
        "running and resumable trials stay, and so do the weights of each study's best cell and "
        "of unfinished sweeps."
    )
    add_sweep_name(command, "all trials")
    command.add_argument(
        "--yes", action="store_true", help="Remove the files instead of listing them."
    )
    add_out(command)
    command.set_defaults(run=run_prune)


def run_prune(args: argparse.Namespace) -> int:
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


def add_doctor(command: argparse.ArgumentParser) -> None:
    add_json(command)
    add_out(command)
    command.set_defaults(run=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    """Print the finding of each check; return 1 if something needs repair, else 0."""
    findings = list(run_checks(resolve_output_folder(args.out)))
    if args.json:
        print_text(json.dumps({"findings": [finding._asdict() for finding in findings]}, indent=1))
    for finding in () if args.json else findings:
        print_text(f"{'ok  ' if finding.ok else 'BAD '} {finding.text}")
    return 0 if all(finding.ok for finding in findings) else 1


def run_checks(out: Path) -> Iterator[Finding]:
    """Yield the finding (whether all is well, and a text) of each check of machine and folder."""
    version_text = f"Python is {platform.python_version()}; 3.11 or later is needed"
    yield Finding(sys.version_info >= (3, 11), version_text)
    for name in PACKAGES:
        try:
            yield Finding(True, f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Finding(False, f"{name} is not installed: pip install {name}")
    yield check_torch()
    yield Finding(True, f"this machine has {count_cores()} cores")
    for purpose, path in (("output", out), ("cache", locate_default_cache())):
        folders = (path.absolute(), *path.absolute().parents)  # the folder may not exist yet
        existing = next(folder for folder in folders if folder.exists())
        free = shutil.disk_usage(existing).free / 2**30
        remedy = "" if free >= FREE_GIB else f", and needs {FREE_GIB:g} GiB: delete some files"
        text = f"the {purpose} folder {path} has {free:.1f} GiB free{remedy}"
        yield Finding(not remedy, text)
    yield check_ledger(out / "ledger.sqlite")
    yield check_mlflow(out)


def check_torch() -> Finding:
    """Check in another process that torch, torchvision and timm import; name torch's GPUs."""
    command = [sys.executable, "-c", GPUS]  # GPUS: a script that names GPUs
    environment = build_public_environment()
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if process.returncode != 0:
        last_line = process.stderr.strip().rpartition("\n")[2]
        remedy = "pip install --force-reinstall torch torchvision timm, all from one index"
        return Finding(False, f"torch, torchvision and timm do not import ({last_line}): {remedy}")
    if names := process.stdout.strip():
        return Finding(True, f"torch sees these GPUs: {names}")
    if shutil.which("nvidia-smi"):
        return Finding(False, "torch sees no GPU: reinstall torch with CUDA, or NVIDIA's driver")
    return Finding(True, "there is no GPU: trials run on the CPU")


def check_ledger(path: Path) -> Finding:
    """Check that the ledger can be read and is intact."""
    if not path.exists():
        return Finding(True, f"there is no ledger at {path} yet")
    try:
        with Ledger(path, timeout=5) as ledger:
            n_trials = sum(row["n"] for row in queries.count_statuses(ledger))
            damage = find_damage(path)
    except (ConfigError, LedgerError, sqlite3.DatabaseError) as error:
        return Finding(False, str(error))
    if damage is not None:
        return Finding(False, f"the ledger {path} is damaged: {damage}. Restore a copy")
    return Finding(True, f"the ledger {path} has {n_trials} trials and is intact")


def check_mlflow(out: Path) -> Finding:
    """Check that the MLflow store of an output folder can be read and is intact."""
    store, path = Store(out), out / "mlflow.db"
    if not path.exists():
        return Finding(True, f"there is no MLflow store at {path} yet")
    try:
        store.check_usable()
    except ConfigError as error:
        return Finding(False, str(error))
    if (damage := find_damage(path)) is not None:
        replay = store.format_command("ledger replay")
        remedy = f"Move the files {path.name}* away; then {replay} writes the store anew"
        return Finding(False, f"the MLflow store {path} is damaged: {damage}. {remedy}")
    return Finding(True, f"the MLflow store {path} is intact")
