"""`ablate trials`: print a line for each trial of a sweep."""

import argparse
from math import inf, isnan

from ablate.cli.locate import locate_ledger
from ablate.cli.options import add_out, add_sweep_name
from ablate.ledger import queries
from ablate.ledger.records import Records
from ablate.results import read_frame
from ablate.values.errors import describe_unknown_metric
from ablate.values.paths import find_varied_paths, get_at, has_path
from ablate.values.terminal import print_text, to_one_line
from reports.tables.labels import format_level, is_lower_better
from trainables.errors import ConfigError


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_sweep_name(command)
    states = ("running", "done", "failed", "partial", "interrupted")
    text = "Show only trials with this status, for example failed."
    command.add_argument("--status", choices=states, help=text)
    text = "Sort by this metric, best first, and show it; for example test/recall_at_1."
    command.add_argument("--sort", metavar="METRIC", help=text)
    text = "Also show the settings in which the trials differ."
    command.add_argument("--params", action="store_true", help=text)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Print a line for each trial of a sweep: id, status, cell, metric, settings and failure."""
    with Records(locate_ledger(args.out)) as records:
        sweep_id = queries.find_sweep(records, args.sweep, "SWEEP")
        frame, rows = read_frame(records, sweep_id), queries.list_sweep_trials(records, sweep_id)
    metric, table = args.sort or frame.main_objective, frame.trials.set_index("trial_id")
    values = {}
    if metric in frame.metrics:
        values = {trial: value for trial, value in table[metric].items() if not isnan(value)}
    if args.sort:
        if metric not in frame.metrics:
            metric_names = [name for name in frame.metrics if "/" in name]
            raise ConfigError("--sort", *describe_unknown_metric(metric, metric_names))
        sign = 1 if is_lower_better(metric) else -1  # best first; trials without a value last
        rows.sort(key=lambda row: sign * values.get(row["trial_id"], sign * inf))
    varied_paths = find_varied_paths(row["config"] for row in rows) if args.params else []
    for row in rows:
        if args.status not in (None, row["status"]):
            continue
        line = f"{row['trial_id']}  {row['status']}  {queries.format_cell_address(row)}"
        if (value := values.get(row["trial_id"])) is not None:
            line += f"  {metric} {value:.4f}"
        for path in varied_paths:
            if has_path(row["config"], path):
                line += f"  {path}={format_level(get_at(row['config'], path))}"
        print_text(line if row["reason"] is None else f"{line}  {to_one_line(row['reason'])}")
    return 0
