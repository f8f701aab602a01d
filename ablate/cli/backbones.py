"""`ablate backbones`: those of the papers, whether weights are here, and which file is needed."""

from __future__ import annotations

import argparse
from pathlib import Path

from ablate.values.terminal import say
from trainables.errors import ConfigError


def backbones(args: argparse.Namespace) -> int:
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
