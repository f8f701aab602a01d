"""That each command leads to a function."""

from __future__ import annotations

import argparse
from importlib import import_module

from ablate.cli.parser import parser


def test_every_command_has_its_handler() -> None:
    (commands,) = (
        each.choices for each in parser()._actions if isinstance(each, argparse._SubParsersAction)
    )
    assert {"run", "ledger", "report", "data", "doctor", "backbones"} <= set(commands)
    for name, command in commands.items():
        module, _, function = command.get_default("handler").partition(":")
        assert callable(getattr(import_module(f"ablate.cli.{module}"), function)), name
