"""`ablate new NAME`: a spec to begin with, from a few options or questions."""

from __future__ import annotations

import argparse


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write a spec with comments that plans as it is. What no option says is asked "
        "where a person sits at a terminal, and is the default elsewhere."
    )
    command.add_argument("name", metavar="NAME", help="of the sweep; its file is NAME.yaml")
    command.add_argument(
        "--data", metavar="NAME|DIR", help="a data set, or a folder of class folders"
    )
    command.add_argument("--loss", metavar="NAME", help="default: proxy_anchor")
    command.add_argument("--method", metavar="NAME", help="default: ddml; plain is the loss alone")
    command.add_argument("--backbone", metavar="NAME", help="default: tf_efficientnet_lite0")
    command.add_argument(
        "--goal",
        metavar="GOAL",
        help="tune (default); terms: and ablate its terms; compare: with the plain loss",
    )
    command.add_argument("--to", metavar="FILE", help="default: ./NAME.yaml")
    command.add_argument("--replace", action="store_true", help="write over a file that is there")


def run(args: argparse.Namespace) -> int:
    from ablate.cli.new_spec import write_new_spec

    return write_new_spec(args)
