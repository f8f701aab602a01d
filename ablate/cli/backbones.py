"""`ablate backbones`: list the papers' backbones and their weights."""

import argparse

from ablate.values.terminal import print_text


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no arguments."""


def run(_: argparse.Namespace) -> int:
    from trainables.backbones.paper_models import list_backbones

    print_text(list_backbones())
    return 0
