"""`ablate diff`: compare two sweeps."""

import argparse

from ablate.cli.options import add_out, add_tracking
from ablate.engine.driver_status import resolve_output_folder
from ablate.storage import ENV
from ablate.tracking.store import Store, build_client_uri
from ablate.values.terminal import print_text


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Compare two sweeps: the difference of each common cell, paired by seed (of a "
        "search, its best cell), then the settings and versions that differ."
    )
    for which in ("first", "second"):
        command.add_argument(which, metavar="SWEEP", help="A sweep, by id or name.")
    text = "The store of the second sweep (default: the first one's): a folder, a URI or env:NAME."
    command.add_argument("--other", metavar="STORE", help=text)
    add_tracking(command)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Print a comparison of two sweeps; `--other` names another MLflow store for the second one."""
    from reports.sweeps.compare import format_comparison, load_sweep

    first = second = Store(resolve_output_folder(args.out), args.tracking_uri)
    if args.other is not None:
        if "://" in args.other or args.other.startswith(ENV):  # a URI, else an output folder
            second = Store(first.out, args.other)
        else:
            second = Store(resolve_output_folder(args.other))
    frames = []
    for store, name in ((first, args.first), (second, args.second)):
        store.check_usable()
        frames.append(load_sweep(build_client_uri(store.uri), name))
    print_text(format_comparison(*frames))
    return 0
