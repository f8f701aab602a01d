"""`ablate plan`: show what a spec would run, as `ablate run --plan` does."""

import argparse
import json

from ablate.cli import run as running
from ablate.cli.options import add_sweep
from ablate.values.terminal import print_text
from trainables.errors import ConfigError


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_sweep(command, optional=True)
    text = "Print the JSON Schema of a spec, and exit."
    command.add_argument("--schema", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    """Print the plan of a spec as `ablate run --plan` does, or the JSON Schema of specs."""
    if args.schema:
        from ablate.spec.json_schema import build_json_schema

        print_text(json.dumps(build_json_schema(), indent=1, sort_keys=True))
        return 0
    if args.spec is None:
        raise ConfigError("SPEC", "no spec is given", "Name a YAML file, or give --schema")
    args.plan, args.cell, args.storage = True, None, None
    return running.run(args)
