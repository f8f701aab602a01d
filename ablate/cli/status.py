"""`ablate status`: show what runs in an output folder, from the files there."""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ablate.cli.locate import locate_ledger
from ablate.cli.options import add_out, add_sweep_name
from ablate.engine.driver_status import (
    DriverStatus,
    StudyRow,
    format_duration,
    format_study_row,
    list_drivers,
)
from ablate.ledger import queries
from ablate.ledger.owner import Owner
from ablate.ledger.records import Records
from ablate.submission.record import QueryError, Submission, find_current
from ablate.values.terminal import print_text, to_one_line
from trainables.core.runtime import LOG, TRIALS, locate_trial_folder

MAX_TRIALS, MAX_REASONS = 8, 5  # printed of each sweep


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_sweep_name(command, "all running sweeps, or the latest one")
    command.add_argument("--json", action="store_true", help="Print everything as JSON.")
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Print the state of the requested sweep, of all running sweeps, or of the latest one."""
    path = locate_ledger(args.out)
    with Records(path) as records:
        known_ids = {sweep["sweep_id"] for sweep in queries.list_sweeps(records)}
        alive = [d for d in list_drivers(path.parent) if d.alive and d.sweep_id in known_ids]
        sweep_ids = list(dict.fromkeys(driver.sweep_id for driver in alive))
        current = find_current(path.parent)
        if current is not None and current.sweep_id in known_ids:
            sweep_ids = list(dict.fromkeys([*sweep_ids, current.sweep_id]))
        if args.sweep is not None or (known_ids and not sweep_ids):
            sweep_ids = [queries.find_sweep(records, args.sweep, "SWEEP")]
        folder = path.parent
        sweeps = [collect_state(records, folder, each, alive, current) for each in sweep_ids]
    if args.json:
        print_text(json.dumps({"sweeps": sweeps}, indent=1))
        return 0
    lines = [text for state in sweeps for text in describe_state(state)]
    print_text("\n".join(lines or ["nothing has run here yet"]))
    return 0


def collect_state(
    records: Records,
    out: Path,
    sweep_id: str,
    alive: Sequence[DriverStatus],
    current: Submission | None = None,
) -> dict[str, Any]:
    """Return the present state of a sweep as `ablate status --json` prints it.

    `alive` are the drivers (processes of `ablate run`) at work in the output folder, and `current`
    is its submission at work.
    """
    now = time.time()
    epochs = {row["trial_id"]: row["epoch"] for row in queries.find_last_epochs(records)}
    trials = {row["trial_id"]: row for row in queries.list_sweep_trials(records, sweep_id)}

    def describe_trial(trial_id: str, driver: DriverStatus) -> dict[str, Any]:
        """Return what `--json` says of a trial at work: its cell, progress, log and node."""
        row = trials[trial_id]
        nodes = (node.name for node in driver.nodes if trial_id in node.trials)
        return {
            "trial_id": trial_id,
            "place": queries.format_cell_address(row),
            "epoch": epochs.get(trial_id, 0),
            "epochs": (row["config"].get("training") or {}).get("epochs"),
            "seconds": round(now - (row["started"] or row["created"]), 1),
            "log": str(locate_trial_folder(out / TRIALS, trial_id) / LOG),
            "node": next(nodes, None),
        }

    def describe_driver(driver: DriverStatus) -> dict[str, Any]:
        """Return what `--json` says of a driver and the trials that it runs.

        `seconds_left` is None until each study of the driver has an estimate.
        """
        trial_ids = [trial_id for trial_id in driver.trials if trial_id in trials]
        estimates = [study.eta for study in driver.studies if study.eta is not None]
        return driver.model_dump(mode="json") | {
            "host": driver.owner.host,
            "pid": driver.owner.pid,
            "seconds": round(now - driver.began, 1),
            "seconds_left": sum(estimates) if len(estimates) == len(driver.studies) > 0 else None,
            "trials": [describe_trial(trial_id, driver) for trial_id in trial_ids],
        }

    return {
        "sweep_id": sweep_id,
        "name": records.get_sweep(sweep_id)["name"],
        "drivers": [describe_driver(driver) for driver in alive if driver.sweep_id == sweep_id],
        "known": queries.count_progress(records, sweep_id),
        "failures": queries.count_failures(records, sweep_id),
        "submitted": describe_tasks(current) if current and current.sweep_id == sweep_id else None,
    }


def describe_tasks(submission: Submission) -> str:
    """Return the states of the tasks of `ablate submit` that are at work."""
    try:
        states = submission.describe_states(submission.list_states())
    except (QueryError, OSError) as error:  # OSError: the lock is another user's
        states = str(error)
    return f"{submission} ({submission.folder}): {states}"


def describe_state(state: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that `ablate status` prints of a sweep."""
    head = f"sweep {state['name']} ({state['sweep_id']})"
    if not state["drivers"]:
        yield f"{head}: not running"
    for driver in state["drivers"]:
        yield f"{head}: {_describe_activity(driver)}"
        yield from (f"  {format_study_row(StudyRow(**study))}" for study in driver["studies"])
        for node in driver["nodes"]:
            yield f"  node {node['name']}: {len(node['trials'])} of {node['slots']} slots in use"
        for trial in driver["trials"][:MAX_TRIALS]:
            location = "" if trial["node"] is None else f", on {trial['node']}"
            yield (
                f"  at work: {trial['trial_id']} ({trial['place']}), epoch {trial['epoch']} of "
                f"{trial['epochs']}, {format_duration(trial['seconds'])}{location}"
            )
        if (n_more := len(driver["trials"]) - MAX_TRIALS) > 0:
            yield f"  at work: {n_more} more trials"
    if not any(driver["studies"] for driver in state["drivers"]):
        for study in state["known"]:
            n_pending = study["size"] - study["done"] - study["failed"]
            yield (
                f"  {study['study']}: {study['done']} of {study['size']} known trials done, "
                f"{study['failed']} failed, {n_pending} without a result"
            )
    if state["submitted"]:
        yield f"  submitted: {state['submitted']}"
    for row in state["failures"][:MAX_REASONS]:
        yield f"  failed: {row['n']} × {to_one_line(row['reason'])} (such as trial {row['trial']})"
    if (n_more := len(state["failures"]) - MAX_REASONS) > 0:
        yield f"  failed: for {n_more} other reasons"


def _describe_activity(driver: dict[str, Any]) -> str:
    """Return how long a driver has run, how many of its slots are in use, and the time left."""
    text = f"{'stopping, ' if driver['stopping'] else ''}running for "
    text += f"{format_duration(driver['seconds'])} "
    text += f"({Owner.parse(driver['owner']).describe()})"
    if driver["slots"] is None:
        return f"{text}; Ray is starting" if driver["studies"] else text  # `ablate submit`
    # a trial holds a slot once a node has reported it
    n_busy = sum(len(node["trials"]) for node in driver["nodes"])
    n_starting = len(driver["trials"]) - n_busy
    text += f"; {n_busy} of {int(driver['slots'])} slots in use"
    text += f", {n_starting} about to start" if n_starting > 0 else ""
    seconds_left = driver["seconds_left"]
    return text if seconds_left is None else f"{text}, about {format_duration(seconds_left)} left"
