"""Watch and stop what runs in an output folder: `ablate status`, `logs` and `stop`."""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from ablate.backends.submission import QueryError, Submission, find_current
from ablate.cli.options import (
    add_json,
    add_out,
    add_sweep_name,
    find_trial,
    locate_ledger,
    parse_duration,
)
from ablate.engine.driver_status import (
    DriverStatus,
    StudyRow,
    format_duration,
    format_study_row,
    list_drivers,
    resolve_output_folder,
)
from ablate.ledger import queries
from ablate.ledger.ledger import Owner
from ablate.ledger.records import Records
from trainables.core.runtime import LOG, TRIALS, locate_trial_folder
from trainables.words.errors import ConfigError
from trainables.words.files import open_regular
from trainables.words.terminal import print_text, to_one_line

MAX_TRIALS, MAX_REASONS = 8, 5  # printed of each sweep
FOLLOW_SECONDS = 0.5
PIECE = 2**16  # characters printed at once
POLL_SECONDS = 0.2


def add_status(command: argparse.ArgumentParser) -> None:
    add_sweep_name(command, "all running sweeps, or the latest one")
    add_json(command)
    add_out(command)
    command.set_defaults(run=run_status)


def run_status(args: argparse.Namespace) -> int:
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


def add_logs(command: argparse.ArgumentParser) -> None:
    command.add_argument("trial", metavar="TRIAL", help="The trial id or its beginning.")
    command.add_argument(
        "--follow", action="store_true", help="Follow the log until the trial ends."
    )
    add_out(command)
    command.set_defaults(run=run_logs)


def run_logs(args: argparse.Namespace) -> int:
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


def add_stop(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Stop the runs of an output folder like Ctrl-C, from any shell or machine that "
        "can write there. The command that started a run continues it later."
    )
    command.epilog = (
        "Exit codes: 0 the runs have ended; 1 they have not ended within --wait; 2 nothing runs."
    )
    add_sweep_name(command, "all sweeps in the folder")
    command.add_argument(
        "--wait",
        default="2m",
        metavar="TIME",
        help="How long to wait for the end of the runs (default: 2m).",
    )
    add_out(command)
    command.set_defaults(run=run_stop)


def run_stop(args: argparse.Namespace) -> int:
    """Ask the drivers of a sweep, or all, to stop; return 1 if one has not ended in time."""
    deadline = time.monotonic() + parse_duration(args.wait, "--wait")
    drivers = [d for d in list_drivers(resolve_output_folder(args.out)) if d.alive]
    drivers = [d for d in drivers if args.sweep in (None, d.sweep_id, d.name)]
    if not drivers:
        raise ConfigError(
            "SWEEP",
            f"no run of {args.sweep!r} is under way" if args.sweep else "no run is under way",
            "`ablate status` shows what runs",
        )
    for driver in drivers:
        try:
            driver.ask_to_stop()
        except OSError as error:
            raise ConfigError(
                str(driver.path.parent),
                f"no file can be written here ({error.strerror})",
                f"Press Ctrl-C where the run was started, or call `kill -INT {driver.owner.pid}` "
                f"on {driver.owner.host}",
            ) from error
        print_text(f"asked {_describe_run(driver)} to stop")
    # wait until all have ended
    while drivers and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        drivers = [driver for driver in drivers if driver.path.exists() and driver.alive]
    for driver in drivers:
        print_text(
            f"{_describe_run(driver)} has not ended yet. Its trials may finish a step first.",
            error=True,
        )
    if not drivers:
        print_text("Stopped. The command that started a run continues it from its checkpoints.")
    return 1 if drivers else 0


def _describe_run(driver: DriverStatus) -> str:
    return f"sweep {driver.name}, {driver.sweep_id} ({driver.owner.describe()})"
