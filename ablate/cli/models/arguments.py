"""The arguments of `backbones`."""

from __future__ import annotations

from ablate.cli.arguments import Commands


def add(commands: Commands) -> None:
    backbones = commands.add_parser(
        "backbones", help="those of the papers, and whether their weights are here"
    )
    backbones.set_defaults(handler="models.backbones:backbones")
