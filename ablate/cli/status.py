"""`ablate status`: what runs in an output folder, told by the files there; no driver is asked."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ablate.cli.locate import ledger_path
from ablate.cli.options import add_out
from ablate.engine.presence import Driver, StudyRow, drivers, duration, line
from ablate.ledger import queries
from ablate.ledger.owner import Owner
from ablate.ledger.queries import find_sweep
from ablate.ledger.records import Records
from ablate.values.terminal import one_line, say
from trainables.core.trial_folder import TRIALS, TrialFolder

AT_WORK, REASONS = 8, 5  # trials and reasons that are named


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "What runs in an output folder, from any shell or machine that sees it. The "
        "run itself is not asked."
    )
    command.add_argument(
        "sweep", nargs="?", help="sweep id or name; default: those that run, else the latest"
    )
    command.add_argument("--json", action="store_true", help="all that is known, as JSON")
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Of the sweep that is named, or of all that run, or of the latest."""
    path = ledger_path(args.out)
    with Records(path) as records:
        known = {sweep["sweep_id"] for sweep in queries.sweeps(records)}
        alive = [each for each in drivers(path.parent) if each.alive and each.sweep_id in known]
        if args.sweep is not None:
            chosen = [find_sweep(records, args.sweep, "SWEEP")]
        elif alive:
            chosen = list(dict.fromkeys(driver.sweep_id for driver in alive))
        elif queries.sweeps(records):
            chosen = [find_sweep(records, None, "SWEEP")]
        else:
            chosen = []
        found = [state(records, path.parent, sweep_id, alive) for sweep_id in chosen]
        others = _others(records, alive)
    if args.json:
        say(json.dumps({"sweeps": found, "others": others}, indent=1))
        return 0
    lines = [text for each in found for text in told(each)] or ["nothing has run here yet"]
    lines += [f"{owner} holds {count} trials" for owner, count in others.items()]
    say("\n".join(lines))
    return 0


def state(records: Records, out: Path, sweep_id: str, alive: Sequence[Driver]) -> dict[str, Any]:
    """All that is known of a sweep now, as `--json` gives it."""
    now, reached = time.time(), queries.reached(records)
    known = {row["trial_id"]: row for row in queries.trials_of(records, sweep_id)}
    driving = [driver for driver in alive if driver.sweep_id == sweep_id]
    return {
        "sweep_id": sweep_id,
        "name": records.sweep(sweep_id)["name"],
        "drivers": [
            {
                "host": driver.owner.host,
                "pid": driver.owner.pid,
                "seconds": round(now - driver.began, 1),
                "told_seconds_ago": round(now - driver.at, 1),
                "stopping": driver.stopping,
                "slots": driver.slots,
                "seconds_left": _left(driver),
                "studies": driver.studies,
                "nodes": [
                    {"name": node["name"], "slots": node["slots"], "in_use": len(node["trials"])}
                    for node in driver.nodes
                ],
                "trials": [
                    _at_work(known[trial], reached.get(trial, 0), out, now)
                    | {"node": _node(driver, trial)}
                    for trial in driver.trials
                    if trial in known
                ],
            }
            for driver in driving
        ],
        "known": queries.progress(records, sweep_id),
        "failures": queries.failures(records, sweep_id),
    }


def _left(driver: Driver) -> float | None:
    """Seconds; None: it cannot be told yet."""
    left = [study["eta"] for study in driver.studies]
    return None if not left or None in left else sum(left)


def _node(driver: Driver, trial: str) -> str | None:
    """Its name; None: nobody has heard of the trial yet."""
    return next((node["name"] for node in driver.nodes if trial in node["trials"]), None)


def _at_work(row: dict[str, Any], epoch: int, out: Path, now: float) -> dict[str, Any]:
    return {
        "trial_id": row["trial_id"],
        "place": queries.place(row),
        "epoch": epoch,
        "epochs": (row["config"].get("training") or {}).get("epochs"),
        "seconds": round(now - (row["started"] or row["created"]), 1),
        "log": str(TrialFolder.of(out / TRIALS, row["trial_id"]).log),
    }


def process(pid: int, host: str) -> str:
    """For a person, without the namespace of its ids."""
    return f"process {pid} on {host.partition('+')[0]}"


def _others(records: Records, alive: Sequence[Driver]) -> dict[str, int]:
    """Processes that hold trials and are no drivers: `--cell`, say."""
    known, held = {str(driver.owner) for driver in alive}, dict[str, int]()
    for row in queries.owners(records):
        owner = Owner.parse(row["owner"])
        if row["owner"] not in known and owner.alive(row["heartbeat"]):
            name = process(owner.pid, owner.host)
            held[name] = held.get(name, 0) + 1
    return held


def told(found: dict[str, Any]) -> Iterator[str]:
    """For a person: the head says whether it runs; then studies, what is at work, failures."""
    head = f"sweep {found['name']} ({found['sweep_id']})"
    if not found["drivers"]:
        yield f"{head}: not running"
        for study in found["known"]:
            left = study["size"] - study["done"] - study["failed"]
            yield (
                f"  {study['study']}: {study['done']} of {study['size']} known trials done, "
                f"{study['failed']} failed, {left} without a result"
            )
    for driver in found["drivers"]:
        yield f"{head}: {_of_driver(driver)}"
        yield from (f"  {line(StudyRow(**study))}" for study in driver["studies"])
        for node in driver["nodes"]:
            yield f"  node {node['name']}: {node['in_use']} of {node['slots']} slots in use"
        for trial in driver["trials"][:AT_WORK]:
            where = "" if trial["node"] is None else f", on {trial['node']}"
            yield (
                f"  at work: {trial['trial_id']} ({trial['place']}), epoch {trial['epoch']} of "
                f"{trial['epochs']}, {duration(trial['seconds'])}{where}"
            )
        more = len(driver["trials"]) - AT_WORK
        if more > 0:
            yield f"  at work: {more} more"
    for row in found["failures"][:REASONS]:
        yield f"  failed: {row['n']} × {one_line(row['reason'])} (as {row['trial']})"
    if len(found["failures"]) > REASONS:
        yield f"  failed: for {len(found['failures']) - REASONS} other reasons"


def _of_driver(driver: dict[str, Any]) -> str:
    words = "stopping" if driver["stopping"] else "running"
    words += f" for {duration(driver['seconds'])} ({process(driver['pid'], driver['host'])})"
    if driver["slots"] is None:
        return f"{words}; Ray is starting"
    # A trial holds a slot once a node has said so: head and nodes then tell the same.
    busy = sum(node["in_use"] for node in driver["nodes"])
    starting = len(driver["trials"]) - busy
    words += f"; {busy} of {int(driver['slots'])} slots in use"
    words += f", {starting} about to start" if starting > 0 else ""
    left = driver["seconds_left"]
    return words + ("" if left is None else f", about {duration(left)} left")
