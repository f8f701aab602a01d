"""That each command has a module, and that a command imports no other's."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import ablate.cli
from ablate.cli.main import COMMANDS, build_parser


def test_every_command_has_its_module() -> None:
    for name in COMMANDS:
        module = import_module(f"ablate.cli.{name}")
        assert callable(module.run) and callable(module.add_arguments), name
    files = Path(ablate.cli.__file__).parent.glob("*.py")
    offering = {path.stem for path in files if "def add_arguments(" in path.read_text()}
    assert offering == set(COMMANDS)


def test_only_the_command_that_is_typed_gets_its_arguments() -> None:
    words = ["best", "--out", "x"]
    assert build_parser(["best"]).parse_args(words).out == "x"
    assert build_parser([]).parse_known_args(words)[1] == ["--out", "x"]
