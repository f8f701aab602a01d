"""Read the results of sweeps: `ablate trials`, `best`, `report` and `diff`."""

import argparse
import json
import shlex
import shutil
import sys
from math import inf, isnan
from pathlib import Path

from ablate.cli.options import add_json, add_out, add_sweep_name, add_tracking, locate_ledger
from ablate.engine.driver_status import resolve_output_folder
from ablate.ledger import queries
from ablate.ledger.queries import find_sweep
from ablate.ledger.records import LEDGER, Records
from ablate.results import find_best, read_frame
from ablate.storage import ENV
from ablate.tracking.store import Store, build_client_uri, store_key
from reports.tables.labels import format_level
from trainables.words.errors import ConfigError
from trainables.words.messages import describe_unknown_metric
from trainables.words.metrics import is_lower_better
from trainables.words.paths import find_varied_paths, get_at, has_path
from trainables.words.secrets import find_server_address
from trainables.words.terminal import print_text, to_one_line


def add_trials(command: argparse.ArgumentParser) -> None:
    add_sweep_name(command)
    states = ("running", "done", "failed", "partial", "interrupted")
    command.add_argument(
        "--status", choices=states, help="Show only trials with this status, for example failed."
    )
    command.add_argument(
        "--sort",
        metavar="METRIC",
        help="Sort by this metric, best first, and show it; for example test/recall_at_1.",
    )
    command.add_argument(
        "--params", action="store_true", help="Also show the settings in which the trials differ."
    )
    add_json(command)
    add_out(command)
    command.set_defaults(run=run_trials)


def run_trials(args: argparse.Namespace) -> int:
    """Print a line for each trial of a sweep: id, status, cell, metric, settings and failure."""
    with Records(locate_ledger(args.out)) as records:
        sweep_id = find_sweep(records, args.sweep, "SWEEP")
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
    rows = [row for row in rows if args.status in (None, row["status"])]
    if args.json:
        kept = ("trial_id", "study", "cell", "seed", "fold", "status", "reason", "config")
        results = table[frame.metrics].to_dict("index")
        described = [{key: row.get(key) for key in kept} for row in rows]
        for each in described:  # a trial that has not ended has no metrics
            measured = results.get(each["trial_id"], {})
            each["metrics"] = {name: x for name, x in measured.items() if not isnan(x)}
        print_text(json.dumps({"sweep_id": sweep_id, "trials": described}, indent=1))
        return 0
    for row in rows:
        line = f"{row['trial_id']}  {row['status']}  {queries.format_cell_address(row)}"
        if (value := values.get(row["trial_id"])) is not None:
            line += f"  {metric} {value:.4f}"
        for path in varied_paths:
            if has_path(row["config"], path):
                line += f"  {path}={format_level(get_at(row['config'], path))}"
        print_text(line if row["reason"] is None else f"{line}  {to_one_line(row['reason'])}")
    return 0


def add_best(command: argparse.ArgumentParser) -> None:
    add_sweep_name(command)
    command.add_argument(
        "study",
        nargs="?",
        help="The study (default: all studies, compared by the sweep's objective).",
    )
    add_json(command)
    add_out(command)
    command.set_defaults(run=run_best)


def run_best(args: argparse.Namespace) -> int:
    """Print the best configuration of a study, or of all studies, as a spec in YAML."""
    path = locate_ledger(args.out)
    with Records(path) as records:
        frame = read_frame(records, find_sweep(records, args.sweep, "SWEEP"))
    best = find_best(frame, args.study, path.parent)
    if args.json:
        kept = ("study", "cell", "metric", "metrics", "settings", "config", "model", "yaml")
        described = {name: getattr(best, name) for name in kept}
        print_text(json.dumps(described, indent=1, default=str))
        return 0
    print_text(best.yaml, end="")
    return 0


def add_report(command: argparse.ArgumentParser) -> None:
    add_sweep_name(command)
    add_tracking(command)
    add_out(command)
    command.set_defaults(run=run_report)


def run_report(args: argparse.Namespace) -> int:
    """Compile the tables and figures of a sweep, and print the tables."""
    from ablate.ledger.ledger import Ledger
    from ablate.tracking.views import compile_report

    with Ledger(locate_ledger(args.out)) as ledger:
        sweep_id = find_sweep(ledger, args.sweep, "SWEEP")
    store = Store(resolve_output_folder(args.out), args.tracking_uri)
    store.check_usable()
    paths, text, trials_page = compile_report(store, sweep_id)
    print_report(text, paths, store, trials_page)
    return 0


def print_report(text: str, paths: dict[str, Path], store: Store, trials_page: str) -> None:
    """Print a report's text, the paths of its files, and where MLflow shows the sweep's trials."""
    if text:
        print_text(f"\n{text}\n")
    if page := paths.get("page"):
        print_text(f"report: {page}\n  with {len(paths) - 1} files in {page.parent}")
        address, command = find_server_address(store.uri), store.format_command("ui").strip("`")
        if shutil.which("ablate") is None:  # its environment is not activated
            command = f"{shlex.quote(str(Path(sys.executable).parent))}/{command}"
        if not trials_page:
            return
        print_text(f"MLflow: {store.redacted_uri if address else command}")
        address = f"{address or 'http://127.0.0.1:5000/'}{trials_page}"
        print_text(f"  this sweep's trials, with their settings and results: {address}")


def add_diff(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Compare two sweeps: the difference of each common cell, paired by seed (of a "
        "search, its best cell), then the settings and versions that differ."
    )
    for which in ("first", "second"):
        command.add_argument(which, metavar="SWEEP", help="A sweep, by id or name.")
    command.add_argument(
        "--other",
        metavar="STORE",
        help=(
            "The store of the second sweep (default: the first one's): a folder, a URI or env:NAME."
        ),
    )
    add_tracking(command)
    add_out(command)
    command.set_defaults(run=run_diff)


def run_diff(args: argparse.Namespace) -> int:
    """Print a comparison of two sweeps; `--other` names another MLflow store for the second one."""
    from reports.compare import format_comparison, load_sweep

    first = second = Store(resolve_output_folder(args.out), args.tracking_uri)
    if args.other is not None:
        if "://" in args.other or args.other.startswith(ENV):  # a URI, else an output folder
            second = Store(first.out, args.other)
        else:
            second = Store(resolve_output_folder(args.other))
    frames = []
    for store, name in ((first, args.first), (second, args.second)):
        ledger = store.out / LEDGER
        if store.option is None and ledger.is_file():
            with Records(ledger) as records:
                sweep_id = find_sweep(records, name, "SWEEP")
                frames.append(read_frame(records, sweep_id, store_key(store.uri)))
        else:
            store.check_usable()
            frames.append(load_sweep(build_client_uri(store.uri), name))
    print_text(format_comparison(*frames))
    return 0
