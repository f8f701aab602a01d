"""Two sweeps side by side: `ablate diff` and `ablate report --compare`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.cli.locate import store_of
from ablate.cli.options import add_other, add_out, add_tracking
from ablate.tracking.store import ENV, client_uri
from ablate.values.terminal import say

if TYPE_CHECKING:
    from reports.sweeps.compare import Place


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Two sweeps side by side: each cell that both have with the difference, paired "
        "by seed; of a search its best; then the settings and versions that differ."
    )
    for place in ("first", "second"):
        command.add_argument(place, metavar="SWEEP", help="sweep id or name")
    add_other(command)
    add_tracking(command)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    from reports.sweeps.compare import compare, plain

    say(plain(compare(*locate_sweeps(args, args.first, args.second))))
    return 0


def locate_sweeps(args: argparse.Namespace, first: str, second: str) -> tuple[Place, Place]:
    """Return where both lie; a store that is named by its URI alone has no folder of reports."""
    from reports.sweeps.compare import Place

    own = other = store_of(args.out, args.tracking_uri)
    beside: Path | None = own.out / "reports"
    if args.other is not None:
        named = "://" in args.other or args.other.startswith(ENV)
        other = store_of(args.out, args.other) if named else store_of(args.other, None)
        beside = None if named else other.out / "reports"
    for store in dict.fromkeys((own, other)):
        store.check()
    return (
        Place(first, client_uri(own.uri), own.out / "reports"),
        Place(second, client_uri(other.uri), beside),
    )
