"""`ablate backbones`: those of the papers, whether weights are here, and which file is needed."""

from __future__ import annotations

import argparse
from pathlib import Path

from ablate.values.terminal import say
from trainables.errors import ConfigError


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "List the papers' backbones and whether their weights are here. With NAME, say "
        "which weights file a model needs that timm lacks; with --file, check such a file."
    )
    command.add_argument("name", nargs="?", metavar="NAME", help="bn_inception, googlenet, …")
    command.add_argument("--file", metavar="PATH", help="a weights file to check")
    command.add_argument(
        "--save", metavar="FILE", help="write the model's tensors of it there, as .safetensors"
    )


def run(args: argparse.Namespace) -> int:
    from trainables.backbones.of_papers import check_weights_file, describe_weights, listing

    if args.name is None and (args.file or args.save):
        raise ConfigError("NAME", "nothing with --file", "the model that the file is of", "Name it")
    if args.save and not args.file:
        raise ConfigError("--save", "it without --file", "--file PATH", "Give the file to convert")
    if args.name is None:
        say(listing())
    elif args.file is None:
        say(describe_weights(args.name))
    else:
        save = Path(args.save) if args.save else None
        say(check_weights_file(args.name, Path(args.file), save))
    return 0
