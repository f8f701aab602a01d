"""`ablate backbones`: those of the papers, whether weights are here, and which file is needed."""

from __future__ import annotations

import argparse

from ablate.values.terminal import print_text
from trainables.errors import ConfigError


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "List the papers' backbones, whether their weights are here, and which weights file a "
        "model needs that timm lacks. A plan checks the file that a spec names."
    )
    for removed in ("--file", "--save"):
        command.add_argument(removed, help=argparse.SUPPRESS)
    command.add_argument("name", nargs="?", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    from trainables.backbones.paper_models import list_backbones

    if args.name or args.file or args.save:
        raise ConfigError(
            "ablate backbones",
            "NAME, --file and --save went in version 0.2.0: give the file as backbone.weights of a "
            "spec, whose plan checks it",
        )
    print_text(list_backbones())
    return 0
