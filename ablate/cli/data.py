"""`ablate data`: which data sets are here, and whether all of one can be used."""

from __future__ import annotations

import argparse

from ablate.cli.options import add_allow_partial
from ablate.values.terminal import print_text
from trainables.errors import ConfigError


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Data sets are found in the folders of $ABLATE_DATA by their usual names. On a cluster "
        "each node looks by itself, and a trial fails there at once where its data set is not the "
        "driver's."
    )
    command.add_argument(
        "action",
        nargs="?",
        choices=("list", "check"),
        default="list",
        help="list: where each is, how many images, what is missing; check NAME: read and hash "
        "every image anew",
    )
    command.add_argument("name", nargs="?", help="check: of a data set (default: folder)")
    command.add_argument("--data-root", metavar="DIR", help="check: where it lies")
    add_allow_partial(command)


def run(args: argparse.Namespace) -> int:
    """Return 0; of `check` 1 where some of the data set cannot be used."""
    from ablate.cli.data_sets import check_data_set, describe_data_sets

    if args.action == "check":
        return check_data_set(args)
    if args.name is not None:
        raise ConfigError(
            "NAME", f"`list` takes no name such as {args.name!r}: say `check` before it"
        )
    print_text("\n".join(describe_data_sets()))
    return 0
