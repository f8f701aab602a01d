"""`ablate backbones`: list the papers' backbones and their weights."""

from __future__ import annotations

import argparse

from ablate.values.terminal import print_text


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "List the papers' backbones, whether their weights are on this machine, and "
        "which weights file a model needs that timm does not offer. A plan checks the "
        "file that a spec names."
    )


def run(_: argparse.Namespace) -> int:
    from trainables.backbones.paper_models import list_backbones

    print_text(list_backbones())
    return 0
