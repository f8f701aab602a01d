"""`ablate backbones`: those of the papers, and whether their weights are here."""

from __future__ import annotations

import argparse

from ablate.values.terminal import say


def backbones(_: argparse.Namespace) -> int:
    from trainables.backbones.of_papers import listing

    say(listing())
    return 0
