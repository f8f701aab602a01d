"""`ablate trials`: a sweep's trials, a line each."""

from __future__ import annotations

import argparse
from math import inf

from ablate.cli.locate import ledger_path
from ablate.cli.options import add_out
from ablate.ledger import queries
from ablate.ledger.queries import find_sweep
from ablate.ledger.records import Records
from ablate.ledger.results import metrics_of
from ablate.values.errors import nearest_metric, some_metrics
from ablate.values.paths import has, lookup, varied_paths
from ablate.values.terminal import one_line, say
from reports.tables.labels import level, lower_is_better
from trainables.errors import ConfigError


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("sweep", nargs="?", help="sweep id or name; default: the latest")
    only = command.add_mutually_exclusive_group()
    only.add_argument("--failed", action="store_true", help="those that failed, with reasons")
    only.add_argument(
        "--status", choices=("running", "done", "failed", "partial", "interrupted"), help="of one"
    )
    command.add_argument(
        "--sort", metavar="METRIC", help="the best first, as test/recall_at_1; shows this metric"
    )
    command.add_argument(
        "--params", action="store_true", help="also the settings in which its trials differ"
    )
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Print a line for each trial of a sweep; return 0 also where there is none."""
    status = "failed" if args.failed else args.status
    with Records(ledger_path(args.out)) as records:
        sweep_id = find_sweep(records, args.sweep, "SWEEP")
        metric = args.sort or records.sweep(sweep_id)["spec"]["objective"]
        rows = [
            row | {"metrics": metrics_of(records, row["trial_id"])}
            for row in queries.trials_of(records, sweep_id)
        ]
    if args.sort:
        known = list(dict.fromkeys(name for row in rows for name in row["metrics"]))
        if metric not in known:
            expected = f"a metric that a trial has: {some_metrics(metric, known)}"
            raise ConfigError("--sort", repr(metric), expected, nearest_metric(metric, known))
        sign = 1 if lower_is_better(metric) else -1
        rows.sort(key=lambda row: sign * row["metrics"].get(metric, sign * inf))
    varied = varied_paths(row["config"] for row in rows) if args.params else []
    for row in rows:
        if status not in (None, row["status"]):
            continue
        line = f"{row['trial_id']}  {row['status']}  {queries.place(row)}"
        if (value := row["metrics"].get(metric)) is not None:
            line += f"  {metric} {value:.4f}"
        for path in varied:
            if has(row["config"], path):
                line += f"  {path}={level(lookup(row['config'], path))}"
        say(line if row["reason"] is None else f"{line}  {one_line(row['reason'])}")
    return 0
