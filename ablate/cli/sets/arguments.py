"""The arguments of `data`."""

from __future__ import annotations

from ablate.cli.arguments import Commands, allow_partial


def add(commands: Commands) -> None:
    data = commands.add_parser(
        "data",
        help="which data sets are here, and whether all of one can be used",
        description="Data sets are found in the folders of $ABLATE_DATA, or of `data` in "
        "~/.config/ablate/settings.toml, by their usual names.",
    )
    data.add_argument(
        "action",
        nargs="?",
        choices=("list", "check"),
        default="list",
        help="list: where each is, how many images, what is missing; check NAME: read every image",
    )
    data.add_argument("name", nargs="?", help="check: of a data set (default: folder)")
    data.add_argument("--data-root", metavar="DIR", help="where it lies")
    data.add_argument(
        "--sheet", metavar="FILE", help="check: the contact sheet (default: ./NAME-sheet.png)"
    )
    allow_partial(data)
    data.set_defaults(handler="sets.data_sets:data")
