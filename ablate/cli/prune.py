"""`ablate prune`: remove checkpoints of finished trials, and weights that no report names.

Logs, configurations, results and the ledger always stay, and so does what another process uses.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from ablate.cli.locate import locate_ledger
from ablate.cli.options import add_out
from ablate.engine.driver_status import list_drivers
from ablate.ledger import queries
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.records import Records
from ablate.ledger.results import find_best_cell, group_cells_by_study, iterate_objectives
from ablate.values.terminal import print_text
from trainables.core.trial_folder import CHECKPOINTS, EXPORT, LOCK, TRIALS, locate_trial_folder
from trainables.errors import ConfigError


class Piece(NamedTuple):
    """A file or folder of a finished trial that may go, and its bytes."""

    trial_id: str
    path: Path
    size: int


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "List files that are no longer needed and how much space they take; delete "
        "them with --yes. Kept are logs, configurations, results, the ledger, files of "
        "running and resumable trials, the weights of each study's best cell at all "
        "its seeds, and the weights of unfinished sweeps."
    )
    command.add_argument("sweep", nargs="?", help="The sweep, by id or name (default: all trials).")
    command.add_argument(
        "--yes", action="store_true", help="Remove the files instead of listing them."
    )
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Return 0; 1 if a file could not be removed.

    Raises:
        ConfigError: the folder of a trial lies outside; nothing is removed then.
    """
    path = locate_ledger(args.out)
    out = path.parent
    trials = out / TRIALS
    if trials.is_symlink():
        raise ConfigError(
            str(trials),
            f"it is a symbolic link to {trials.readlink()}, and nothing outside the output folder "
            "is removed: move the trials there, or make the output folder as a whole the link",
        )
    with Ledger(path) as ledger:
        pieces, notes = find_pieces(ledger, out, args.sweep)
        verb = "frees" if args.yes else "would free"
        lines = [] if pieces else [f"nothing to remove in {out}"]
        for name, kind in ((CHECKPOINTS, "checkpoints"), (EXPORT, "weights")):
            if sizes := [piece.size for piece in pieces if piece.path.name == name]:
                lines.append(f"{kind} of {len(sizes)} trials: {verb} {sum(sizes) / 1e6:,.1f} MB")
        print_text("\n".join([*lines, *notes]))
        if not pieces:
            return 0
        if not args.yes:
            print_text("\n".join(f"  {piece.path}" for piece in pieces))
            print_text(
                "Nothing is removed yet. Where weights are gone, more splits or metrics cannot be "
                "evaluated, but by training again. Remove it with the same command and --yes"
            )
            return 0
        freed, failures = _remove_pieces(ledger, pieces)
    print_text(f"freed {freed / 1e6:,.1f} MB")
    for line in failures:
        print_text(line, error=True)
    if any(piece.path.name == EXPORT for piece in pieces):
        print_text("reports that link to these weights are written anew by `ablate report`")
    return 1 if failures else 0


def find_pieces(records: Records, out: Path, sweep: str | None) -> tuple[list[Piece], list[str]]:
    """Return what may go, and a line for each sweep whose weights stay because it goes on."""
    rows = queries.list_trials(records)
    if sweep is not None:
        rows = queries.list_sweep_trials(records, queries.find_sweep(records, sweep, "SWEEP"))
    trial_ids = {row["trial_id"] for row in rows}
    # an unfinished sweep may read its trials again, on other splits or as an ensemble
    under_way = {driver.sweep_id for driver in list_drivers(out) if driver.alive}
    needed = _find_best_trials(records)
    notes = []
    for sweep_row in queries.list_sweeps(records):
        sweep_id = sweep_row["sweep_id"]
        progress = queries.count_progress(records, sweep_id)
        unfinished = any(row["done"] + row["failed"] < row["size"] for row in progress)
        if unfinished or sweep_id in under_way:
            trials = {row["trial_id"] for row in records.list_cells(sweep_id)}
            needed |= trials
            if unfinished and trials & trial_ids:
                notes.append(
                    f"sweep {sweep_row['name']} ({sweep_id}) is not finished: its weights stay"
                )
    claimed = {
        row["trial_id"]
        for row in queries.list_owners(records)
        if Owner.parse(row["owner"]).is_alive(row["heartbeat"])
    }
    pieces = []
    for row in rows:
        trial_id = row["trial_id"]
        if row["status"] not in ("done", "failed") or trial_id in claimed:
            continue
        for name in (CHECKPOINTS,) if trial_id in needed else (CHECKPOINTS, EXPORT):
            path = locate_trial_folder(out / TRIALS, trial_id) / name
            if path.exists() and not path.is_symlink():  # a link leads to what is not ours
                files = path.rglob("*") if path.is_dir() else [path]
                size = sum(file.lstat().st_size for file in files if file.is_file())
                pieces.append(Piece(trial_id, path, size))
    return pieces, notes


def _find_best_trials(records: Records) -> set[str]:
    """Return the trials of the best cell of each objective of each study: reports name their
    weights."""
    best: set[str] = set()
    for sweep in queries.list_sweeps(records):
        spec = records.get_sweep(sweep["sweep_id"])["spec"]
        for study, cells in group_cells_by_study(records, sweep["sweep_id"]).items():
            for metric, most in iterate_objectives(spec, study):
                cell = find_best_cell(records, cells, metric, higher_is_better=most)
                best |= {row["trial_id"] for row in cells[cell]} if cell else set()
    return best


def _remove_pieces(ledger: Ledger, pieces: Iterable[Piece]) -> tuple[int, list[str]]:
    """Return the bytes freed, and a line for each trial that was left as it is.

    A finished trial is claimed meanwhile, and each folder locked, so that no driver runs it.
    """
    owner, freed, failures = Owner.from_this_process(), 0, list[str]()
    for trial_id, path, size in pieces:
        done = (ledger.get_trial(trial_id) or {}).get("status") == "done"
        if done and ledger.claim_evaluation(trial_id, owner) != "mine":
            failures.append(f"{trial_id}: not removed, because a run has claimed it")
            continue
        try:
            folder = locate_trial_folder(
                path.parent.parent, trial_id
            )  # checks again that it is no link
            with FileLock(folder / LOCK, timeout=0):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            freed += size
        except Timeout:
            failures.append(f"{trial_id}: not removed, because another process uses its folder")
        except (ConfigError, OSError) as error:
            failures.append(f"{path}: not removed ({error})")
        finally:
            if done:
                ledger.release(trial_id, "interrupted")  # a finished trial stays done
    return freed, failures
