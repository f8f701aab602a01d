"""`ablate trials` and `ablate logs`: a sweep's trials line by line, and what one of them wrote."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ablate.cli.facts.place import ledger_path, trial_called
from ablate.ledger import queries
from ablate.ledger.queries import find_sweep
from ablate.ledger.records import Records
from ablate.values.terminal import say
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName

FOLLOW_SECONDS = 0.5


def trials(args: argparse.Namespace) -> int:
    """A line for each trial of a sweep; 0 also where there is none."""
    wanted = "failed" if args.failed else args.status
    with Records(ledger_path(args.out)) as records:
        sweep_id = find_sweep(records, args.sweep, "SWEEP")
        objective = records.sweep(sweep_id)["spec"]["objective"]
        for row in queries.trials_of(records, sweep_id):
            if wanted in (None, row["status"]):
                say(_line(records, row, objective))
    return 0


def _line(records: Records, row: dict[str, Any], objective: str) -> str:
    split, metric = MetricName.parse(objective)
    value = records.evaluations(row["trial_id"]).get(split, {}).get(metric)
    text = f"{row['trial_id']}  {row['status']}  {queries.place(row)}"
    if value is not None:
        text += f"  {objective} {value:.4f}"
    return text if row["reason"] is None else f"{text}  {row['reason']}"


def logs(args: argparse.Namespace) -> int:
    """Print a trial's log; with `--follow` until its trial is no longer under way."""
    ledger = ledger_path(args.out)
    with Records(ledger) as records:
        trial = trial_called(records, args.trial)
        file = ledger.parent / "trials" / trial / "trial.log"
        if not file.is_file():
            status = (records.trial(trial) or {}).get("status")
            raise ConfigError(
                str(file),
                f"no log, of a trial that is {status}",
                "one of a trial that has started, and whose folder is here",
                f"`ablate ledger show {trial}` tells what is known of it",
            )
        read = _tail(file, args.lines)
        while args.follow:
            under_way = (records.trial(trial) or {}).get("status") == "running"
            read = _more(file, read)
            if not under_way:
                break
            time.sleep(FOLLOW_SECONDS)
    return 0


def _tail(file: Path, lines: int | None) -> int:
    """Print the last lines, or all; returns the bytes read."""
    content = file.read_bytes()
    shown = content.decode(errors="replace").splitlines()
    if lines is not None:
        shown = shown[max(0, len(shown) - lines) :]
    if shown:
        say("\n".join(shown))
    return len(content)


def _more(file: Path, read: int) -> int:
    """Print what came after so many bytes; returns how many there are."""
    with file.open("rb") as log:
        log.seek(read)
        fresh = log.read()
    if fresh:
        say(fresh.decode(errors="replace"), end="", flush=True)
    return read + len(fresh)
