"""`ablate plan`: show what a spec would run, as `ablate run --plan` does."""

import argparse
import json
import math

from ablate.cli import run as running
from ablate.cli.locate import locate_ledger
from ablate.cli.options import add_sweep, build_options, load_spec
from ablate.values.terminal import print_text
from trainables.errors import ConfigError


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_sweep(command, optional=True)
    text = "Print the JSON Schema of a spec, and exit."
    command.add_argument("--schema", action="store_true", help=text)
    text = (
        "Propose the cheapest numbers of splits and seeds that decide for this smallest effect of "
        "interest, in the unit of the tables, from the finished trials in --out."
    )
    command.add_argument("--decide", metavar="EFFECT", help=text)


def run(args: argparse.Namespace) -> int:
    """Print the plan of a spec as `ablate run --plan` does, or the JSON Schema of specs."""
    if args.schema:
        from ablate.spec.model import build_json_schema

        print_text(json.dumps(build_json_schema(), indent=1, sort_keys=True))
        return 0
    if args.spec is None:
        raise ConfigError("SPEC", "no spec is given", "Name a YAML file, or give --schema")
    if args.decide is not None:
        return _propose_designs(args)
    args.plan, args.cell, args.storage = True, None, None
    return running.run(args)


def _propose_designs(args: argparse.Namespace) -> int:
    """Print the cheapest design of each comparison, from the finished trials in the ledger."""
    smallest = parse_effect(args.decide)
    loaded = load_spec(args)
    locate_ledger(args.out)
    from ablate import api
    from ablate.engine.design_proposals import describe_designs

    plan, settings = api.prepare(loaded, build_options(args), runs=False)
    print_text(describe_designs(plan, settings, smallest))
    return 0


def parse_effect(text: str) -> float:
    """Return the number of --decide; raise ConfigError if it is not a finite one above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigError(
            "--decide",
            f"{text[:40]!r} is not a number above 0",
            "Give the smallest effect of interest in points, as --decide 0.5",
        )
    return value
