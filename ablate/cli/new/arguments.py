"""The arguments of `new`."""

from __future__ import annotations

from ablate.cli.arguments import Commands


def add(commands: Commands) -> None:
    new = commands.add_parser(
        "new",
        help="write a spec to begin with, from a few options or questions",
        description="Write a spec with comments that plans as it is. What no option says is asked "
        "where a person sits at a terminal, and is the default elsewhere.",
    )
    new.add_argument("name", metavar="NAME", help="of the sweep; its file is NAME.yaml")
    new.add_argument("--data", metavar="NAME|DIR", help="a data set, or a folder of class folders")
    new.add_argument("--loss", metavar="NAME", help="default: proxy_anchor")
    new.add_argument("--method", metavar="NAME", help="default: ddml; plain is the loss alone")
    new.add_argument("--backbone", metavar="NAME", help="default: tf_efficientnet_lite0")
    new.add_argument(
        "--goal",
        metavar="GOAL",
        help="tune (default); terms: and ablate its terms; compare: with the plain loss",
    )
    new.add_argument("--to", metavar="FILE", help="default: ./NAME.yaml")
    new.add_argument("--replace", action="store_true", help="write over a file that is there")
    new.set_defaults(handler="new_spec:new")
