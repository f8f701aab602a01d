"""`ablate report`: compile the tables and figures of a sweep again."""

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from ablate.cli.locate import locate_ledger
from ablate.cli.options import add_out, add_sweep_name, add_tracking
from ablate.engine.driver_status import resolve_output_folder
from ablate.tracking.store import Store
from trainables.words.secrets import find_server_address
from trainables.words.terminal import print_text


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_sweep_name(command)
    add_tracking(command)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Compile the tables and figures of a sweep from MLflow, and print the tables."""
    from ablate.ledger.ledger import Ledger
    from ablate.ledger.queries import find_sweep
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
        print_text(f"MLflow: {store.redacted_uri if address else command}")
        address = f"{address or 'http://127.0.0.1:5000/'}{trials_page}"
        print_text(f"  this sweep's trials, with their settings and results: {address}")
