"""`ablate report`: a sweep's tables and figures, compiled again."""

from __future__ import annotations

import argparse
from pathlib import Path

from ablate.cli.locate import ledger_path, store_of
from ablate.cli.options import add_other, add_out, add_tracking
from ablate.values.terminal import say
from reports.uri import link
from trainables.errors import ConfigError


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("sweep", nargs="?", help="sweep id or name; default: the latest")
    command.add_argument(
        "--compare",
        nargs=2,
        metavar="SWEEP",
        help="write a page of these two side by side instead (ids or names)",
    )
    add_other(command)
    add_tracking(command)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    store = store_of(args.out, args.tracking_uri)
    if args.compare is not None:
        from ablate.cli.diff import locate_sweeps
        from reports.sweeps.compare import compare, plain, write

        if args.sweep is not None:
            expected = "two sweeps after --compare and none beside them"
            raise ConfigError("SWEEP", repr(args.sweep), expected)
        places = locate_sweeps(args, *args.compare)
        comparison = compare(*places)
        paths = write(comparison, places, store.out / "reports")
        page = paths["compared.html"]
        say(f"\n{plain(comparison)}")
        say(f"comparison: {page}\n  with {len(paths) - 1} files in {page.parent}")
        return 0
    if args.other is not None:
        raise ConfigError(
            "--other", "it without --compare", "--compare SWEEP SWEEP", "Leave it out"
        )
    from ablate.ledger.ledger import Ledger
    from ablate.ledger.queries import find_sweep
    from ablate.tracking.views import compile_report

    with Ledger(ledger_path(args.out)) as facts:
        sweep_id = find_sweep(facts, args.sweep, "sweep")
    store.check()
    paths, text, trials_page = compile_report(store, sweep_id)
    print_report(text, paths, store.shown, trials_page)
    return 0


def print_report(text: str, paths: dict[str, Path], store: str, trials_page: str) -> None:
    if text:
        say(f"\n{text}\n")
    if "page" in paths:
        page = paths["page"]
        say(f"report: {page}\n  with {len(paths) - 1} files in {page.parent}")
        # A server is its own interface; a file needs one, on the loopback address by default.
        served = store.startswith("http")
        say(f"MLflow: {store if served else f'mlflow ui --backend-store-uri {store}'}")
        server = link(store) if served else "http://127.0.0.1:5000/"
        say(f"  this sweep's trials, with their settings and results: {server}{trials_page}")
