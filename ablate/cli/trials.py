"""`ablate trials` and `ablate logs`: a sweep's trials line by line, and what one of them wrote."""

from __future__ import annotations

import argparse
import os
import time
from codecs import getincrementaldecoder
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

from ablate.cli.locate import ledger_path, trial_called
from ablate.ledger import queries
from ablate.ledger.best import find_best, metrics_of
from ablate.ledger.queries import find_sweep
from ablate.ledger.records import Records
from ablate.values.paths import has, lookup, varied_paths
from ablate.values.remedies import nearest_metric, some_metrics
from ablate.values.terminal import one_line, say
from reports.tables.labels import level, lower_is_better
from trainables.core.trial_folder import TRIALS, trial_folder
from trainables.errors import ConfigError
from trainables.machine.files import open_regular

FOLLOW_SECONDS = 0.5
BLOCK = 2**16  # bytes that are read at once
MOST_BYTES = 2**24  # that are looked through for the last lines


def trials(args: argparse.Namespace) -> int:
    """A line for each trial of a sweep; 0 also where there is none."""
    wanted = "failed" if args.failed else args.status
    with Records(ledger_path(args.out)) as records:
        sweep_id = find_sweep(records, args.sweep, "SWEEP")
        metric = args.sort or records.sweep(sweep_id)["spec"]["objective"]
        rows = [
            row | {"metrics": metrics_of(records, row["trial_id"])}
            for row in queries.trials_of(records, sweep_id)
        ]
        if args.sort:
            rows = _sorted(rows, args.sort)
        varied = varied_paths(row["config"] for row in rows) if args.params else []
        for row in rows:
            if wanted in (None, row["status"]):
                say(_line(row, metric, varied))
    return 0


def _sorted(rows: list[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    """The trials that have a metric, the best one first, then the others.

    Raises:
        ConfigError: no trial has this metric.
    """
    known = dict.fromkeys(name for row in rows for name in row["metrics"])
    if metric not in known:
        raise ConfigError(
            "--sort",
            repr(metric),
            f"a metric that a trial has: {some_metrics(metric, known)}",
            nearest_metric(metric, known),
        )
    sign = 1 if lower_is_better(metric) else -1
    return sorted(rows, key=lambda row: sign * row["metrics"].get(metric, sign * inf))


def _line(row: dict[str, Any], metric: str, varied: Sequence[str]) -> str:
    value = row["metrics"].get(metric)
    text = f"{row['trial_id']}  {row['status']}  {queries.place(row)}"
    if value is not None:
        text += f"  {metric} {value:.4f}"
    for path in varied:
        if has(row["config"], path):
            text += f"  {path}={level(lookup(row['config'], path))}"
    return text if row["reason"] is None else f"{text}  {one_line(row['reason'])}"


def best(args: argparse.Namespace) -> int:
    """Print the best configuration of a study as YAML that runs; comments say how to use it."""
    path = ledger_path(args.out)
    with Records(path) as records:
        sweep, study = args.sweep, args.study
        if sweep is not None and study is None:
            latest = find_sweep(records, None, "SWEEP")
            names = {
                value for row in queries.sweeps(records) for value in (row["sweep_id"], row["name"])
            }
            if sweep not in names and sweep in records.sweep(latest)["spec"]["studies"]:
                sweep, study = latest, sweep
        sweep_id = find_sweep(records, sweep, "SWEEP")
        say(find_best(records, sweep_id, study, path.parent).yaml, end="")
    return 0


def logs(args: argparse.Namespace) -> int:
    """Print a trial's log; with `--follow` until its trial is no longer under way."""
    ledger = ledger_path(args.out)
    with Records(ledger) as records:
        trial = trial_called(records, args.trial)
        file = trial_folder(ledger.parent / TRIALS, trial) / "trial.log"
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
    with _opened(file) as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(0 if lines is None else _start_of_last(log, lines, size))
        return _print_rest(log, end_line=True)


def _start_of_last(log: BinaryIO, lines: int, size: int) -> int:
    """Return where the last lines begin; of lines longer than `MOST_BYTES` in all their end."""
    start, found = size, 0
    while start > max(0, size - MOST_BYTES):
        begin = max(0, start - BLOCK)
        log.seek(begin)
        block = log.read(start - begin)
        at = len(block)
        if start == size and block.endswith(b"\n"):
            at -= 1  # it ends the last line
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            found += 1
            if found == lines:
                return begin + at + 1
        start = begin
    return start


def _more(file: Path, read: int) -> int:
    """Print what came after so many bytes; returns how many there are."""
    with _opened(file) as log:
        log.seek(read)
        return _print_rest(log, end_line=False)


def _print_rest(log: BinaryIO, *, end_line: bool) -> int:
    """Print what is left, a block at a time; returns where it ends.

    Args:
        end_line: whether to end a last line that has no end.
    """
    decoder = getincrementaldecoder("utf-8")(errors="replace")
    text = "\n"
    while block := log.read(BLOCK):
        text = decoder.decode(block) or text
        say(text, end="", flush=True)
    rest = decoder.decode(b"", final=True)
    say(rest + ("\n" if end_line and not (rest or text).endswith("\n") else ""), end="", flush=True)
    return log.tell()


def _opened(file: Path) -> BinaryIO:
    try:
        return open_regular(file)
    except OSError as error:
        raise ConfigError(
            str(file), error.strerror or str(error), "the log of a trial", "Look at it yourself"
        ) from error
