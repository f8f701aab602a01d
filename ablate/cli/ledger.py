"""`ablate ledger`: what an output folder's ledger knows, and what may be done with it."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from ablate.cli.locate import ledger_path, trial_called
from ablate.cli.options import add_out, add_tracking
from ablate.engine.presence import duration
from ablate.ledger import queries
from ablate.ledger.records import Records
from ablate.values.terminal import one_line, say
from trainables.core.trial_folder import CONFIG, EXPORT, LOG, TRIALS, trial_folder
from trainables.errors import ConfigError

METRICS = ("recall_at_1", "map_at_r", "r_precision", "top_1_accuracy")  # the first to be read
MOST_CELLS = 3  # that are named


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "action",
        nargs="?",
        choices=("ls", "show", "export", "replay", "import"),
        default="ls",
        help="ls: counts, sweeps and failures; show TRIAL; export [SWEEP]: a row per trial and "
        "cell; replay [SWEEP]: write to MLflow what it lacks, when no run is under way; import "
        "DIR: make facts of what a batch (`ablate cells`) has finished",
    )
    command.add_argument(
        "--to", metavar="FILE", help="export: .csv, .jsonl or .parquet (default: CSV, printed)"
    )
    command.add_argument(
        "name",
        nargs="?",
        help="a trial id or its beginning; a sweep's id or name; a batch's folder",
    )
    command.add_argument(
        "--same-code",
        action="store_true",
        help="import: the code here gives the same numbers as that of the batch, at its REVISIONs",
    )
    command.add_argument(
        "--rebuild",
        action="store_true",
        help="replay: move a damaged SQLite store aside, and write every sweep into a fresh one",
    )
    command.add_argument("--json", action="store_true", help="show: all that is known, as JSON")
    add_tracking(command)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    path = ledger_path(args.out)
    if args.action == "replay":
        return _replay(path, args)
    if args.action == "import":
        from ablate.cli.cells import import_batch_folder

        return import_batch_folder(args, path.parent)
    if args.action == "export":
        from ablate.ledger.results import export

        export(path, args.name, None if args.to is None else Path(args.to))
        return 0
    with Records(path) as records:
        if args.action == "ls":
            for row in queries.statuses(records):
                say(f"{row['status']}: {row['n']} trials, {row['seconds']:.0f} s of training")
            for row in queries.sweeps(records):
                say(f"sweep {row['sweep_id']} {row['name']}: {row['n']} cells")
            for row in queries.reasons(records):
                say(f"{row['status']} {row['trial_id']}: {one_line(row['reason'])}")
            return 0
        trial_id = trial_called(records, args.name)
        if not args.json:
            say("\n".join(summarise_trial(records, trial_id, path.parent)))
            return 0
        row = records.trial(trial_id) or {}
        # Who looks at one trial mostly asks why it has no result: that first, details after it.
        first = {key: row.get(key) for key in ("trial_id", "status", "reason")}
        source = records.source(row.get("source")) or "unknown: older than sources are kept"
        details = {"source": source, "evaluations": records.evaluations(trial_id)}
        say(json.dumps(first | row | details, indent=1, default=str))
    return 0


def summarise_trial(records: Records, trial_id: str, out: Path) -> list[str]:
    """Return six lines: what became of it, where it belongs, what it was, what it gave, how it
    went, where its files are."""
    row = records.trial(trial_id) or {}
    config = row["config"]
    # the cells it fills
    cells = [
        f"{cell['name']} ({cell['sweep_id']}) {queries.place(cell)}"
        for cell in queries.cells_filled(records, trial_id)
    ]
    more = f"; and {len(cells) - MOST_CELLS} more cells" if len(cells) > MOST_CELLS else ""
    # what was trained
    parts = {part: config.get(part) or {} for part in ("method", "loss", "backbone", "data")}
    method, loss, backbone, data = (str(part.get("name", "?")) for part in parts.values())
    mode, side = parts["backbone"].get("mode"), parts["data"].get("image_size")
    backbone += f" ({mode})" if mode else ""
    data += f" at {side} px" if side else ""
    rate = (config.get("optimizer") or {}).get("lr")
    rate = f", learning rate {rate:.3g}" if rate else ""
    # its metrics
    results = []
    for split, metrics in records.evaluations(trial_id).items():
        names = [name for name in METRICS if name in metrics] or sorted(metrics)
        results += [f"{split}/{name} {metrics[name]:.4f}" for name in names]
    # its course
    if row["epochs"] is None:
        reached = max((each["epoch"] for each in records.epochs(trial_id)), default=0)
        course = f"{reached} of {(config.get('training') or {}).get('epochs')} epochs so far"
    else:
        course = f"{row['epochs']} epochs ({row['steps']} steps) in {duration(row['seconds'])}"
        course += f", the best being {row['best_epoch']}"
    device = (row["provenance"] or {}).get("device")
    course += f", on {device}" if device else ""
    if row["started"]:
        course += f", begun {time.strftime('%Y-%m-%d %H:%M', time.localtime(row['started']))}"
    folder = trial_folder(out / TRIALS, trial_id)
    files = [name for name in (LOG, CONFIG, EXPORT) if (folder / name).is_file()]
    return [
        f"{trial_id}: {row['status']}" + (f", {one_line(row['reason'])}" if row["reason"] else ""),
        f"in:      {'; '.join(cells[:MOST_CELLS]) or 'no sweep'}{more}",
        f"is:      {method} on {loss}, {backbone}, {data}, seed {row['seed']}{rate}",
        f"gave:    {', '.join(results) or 'no result'}",
        f"took:    {course}",
        f"left:    {', '.join(files) or 'no files'} in {folder}",
    ]


def _replay(path: Path, args: argparse.Namespace) -> int:
    """Write every sweep of the ledger, or the named one, into the MLflow store."""
    from ablate.api import Options
    from ablate.ledger.ledger import Ledger
    from ablate.tracking.replay import rebuild, replay_all

    store = Options(out=args.out, tracking_uri=args.tracking_uri).store
    with Ledger(path) as facts:
        if args.rebuild:
            if args.name is not None:
                expected = "none with --rebuild: it writes them all"
                raise ConfigError("SWEEP", repr(args.name), expected)
            say(f"moved aside: {rebuild(facts, store) or 'nothing'}")
        else:
            store.check()
        if args.name is None:
            sweep_ids = [row["sweep_id"] for row in queries.sweeps(facts)]
        else:
            sweep_ids = [queries.find_sweep(facts, args.name, "SWEEP")]
    refused = replay_all(path, store, sweep_ids)
    for trial_id, reason in refused.items():
        say(f"refused {trial_id}: {reason}", error=True)
    return 1 if refused else 0
