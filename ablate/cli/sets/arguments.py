"""The arguments of `data`."""

from __future__ import annotations

from ablate.cli.arguments import Commands, allow_partial


def add(commands: Commands) -> None:
    data = commands.add_parser(
        "data",
        help="which data sets are here, and whether all of one can be used",
        description="Data sets are found in the folders of $ABLATE_DATA, or of `data` in "
        "~/.config/ablate/settings.toml, by their usual names. On a cluster each node looks by "
        "itself; what it lacks it fetches from a run's --storage, where `push` has put it.",
    )
    data.add_argument(
        "action",
        nargs="?",
        choices=("list", "check", "push"),
        default="list",
        help="list: where each is, how many images, what is missing; check NAME: read and hash "
        "every image anew; push NAME: send it to --storage",
    )
    data.add_argument("name", nargs="?", help="check, push: of a data set (default: folder)")
    data.add_argument("--data-root", metavar="DIR", help="where it lies")
    data.add_argument(
        "--sheet", metavar="FILE", help="check: the contact sheet (default: ./NAME-sheet.png)"
    )
    data.add_argument(
        "--storage", metavar="URI", help="push: a path, s3://…, gs://…, hdfs://… or env:NAME"
    )
    allow_partial(data)
    data.set_defaults(handler="data:data")
