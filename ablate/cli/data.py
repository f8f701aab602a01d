"""`ablate data`: list the data sets on this machine, or check one."""

import argparse

from ablate.cli.options import add_allow_partial, add_grey_range
from trainables.words.errors import ConfigError
from trainables.words.terminal import print_text


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "List or check data sets, which are found by their usual names in the folders of "
        "$ABLATE_DATA. On a cluster each node must have the driver's data sets."
    )
    command.add_argument(
        "action",
        nargs="?",
        choices=("list", "check"),
        default="list",
        help=(
            "The action: `list` shows where each data set is, how many images it has and what "
            "is missing; `check NAME` reads and hashes every image again."
        ),
    )
    command.add_argument(
        "name", nargs="?", help="For `check`: a data set, or a folder of class folders."
    )
    text = "For `check`: the folder of the data set."
    command.add_argument("--data-root", metavar="DIR", help=text)
    add_allow_partial(command)
    add_grey_range(command)


def run(args: argparse.Namespace) -> int:
    """List the data sets, or check one; return 1 if the checked one has faults, else 0."""
    from ablate.cli.data_sets import check_data_set, describe_data_sets

    if args.action == "check":
        return check_data_set(args)
    if args.name is not None:
        raise ConfigError(
            "NAME",
            "`list` takes no name",
            f"Check this data set by `ablate data check {args.name}`",
        )
    print_text("\n".join(describe_data_sets()))
    return 0
