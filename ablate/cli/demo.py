"""`ablate demo`: run the recipe ddml, as `make demo` does."""

import argparse

from ablate.cli import run as running
from ablate.cli.options import add_out
from ablate.spec.yaml_loader import FOLDER


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Run the recipe ddml, and compile its report; return an exit code."""
    parser = argparse.ArgumentParser()
    running.add_arguments(parser)
    return running.run(parser.parse_args([str(FOLDER / "ddml.yaml"), "--out", args.out]))
