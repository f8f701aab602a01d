"""Names do not steer the terminal that shows them, whatever file they come from."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ablate.cli.main import main
from trainables.words.texts import escape_control_characters

ROOT = Path(__file__).resolve().parents[3]
EVIL = "\x1b[31mred\x1b]0;title\x07\r\x9b2J\u202egnp"


def test_escape_codes_are_written_out() -> None:
    assert escape_control_characters("\x1b[2Ja\tb\nc\x85") == "\\x1b[2Ja\tb\nc\\x85"
    assert escape_control_characters("é ü → 中 👩\u200d🔬") == "é ü → 中 👩\u200d🔬"
    assert not set(escape_control_characters(EVIL)) & set("\x1b\x07\r\x9b\u202e")


def test_a_class_folders_name_is_shown_and_not_obeyed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", EVIL):
        (tmp_path / "data" / name).mkdir(parents=True)
    spec = tmp_path / "s.yaml"
    spec.write_text("name: x\nstudies: {g: {design: grid, grid: {optimizer.lr: [0.1]}}}")
    (tmp_path / "data" / "a" / "a.jpg").touch()
    assert main(["plan", str(spec), "--data-root", str(tmp_path / "data")]) == 2
    told = capsys.readouterr().err
    assert "\\x1b[31mred" in told and told.count("\n") == 1
    assert not set(told) & set("\x1b\x07\r\x9b\u202e")


def test_commands_print_through_one_function() -> None:
    paths = {p.relative_to(ROOT).as_posix(): p for p in (ROOT / "ablate").rglob("*.py")}
    assert len(paths) > 50
    for name, path in sorted(paths.items()):
        calls = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Name) and node.id == "print"
        ]
        assert not calls, (
            f"{name} prints in line {calls}; take trainables.words.terminal.print_text"
        )
