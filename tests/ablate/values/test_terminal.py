"""Names do not steer the terminal that shows them, whatever file they come from."""

from __future__ import annotations

import ast
import errno
import io
import os
import sys
from pathlib import Path

import pytest

from ablate.cli.main import main
from ablate.engine.driver_status import StudyRow, resolve_output_folder
from ablate.engine.progress import ProgressDisplay
from ablate.values.terminal import print_text
from tests.ablate import specs
from tests.ablate.driven import dispatch
from trainables.errors import ConfigError
from trainables.machine.texts import escape_control_characters

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


def test_a_terminal_without_the_sign_gets_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with pytest.raises(SystemExit):
        main(["--help"])
    print_text("3 cells × 2 seeds")
    sys.stdout.flush()
    assert b"3 cells \\xd7 2 seeds" in raw.getvalue()


def test_the_board_shows_names_as_they_are(tmp_path: Path) -> None:
    from rich.console import Console

    stream = io.StringIO()
    board = ProgressDisplay(dispatch(specs.plan(), tmp_path), 1, tmp_path / "log", stream)
    board._rows = [StudyRow("[red]a[/nothing]", 1, 1, 0, 0, 0, None, None, "\x1b[2J")]
    Console(file=stream, force_terminal=True, width=100).print(board.format_table())
    assert "[red]a[/nothing]" in stream.getvalue() and "\x1b[2J" not in stream.getvalue()
    board.print_line("\x1b[2Jcleared")
    board._log.close()
    assert (
        "\\x1b[2Jcleared" in (tmp_path / "log").read_text() and "\x1b[2J" not in stream.getvalue()
    )


def test_commands_print_through_one_function() -> None:
    own = {"values/terminal.py"}
    paths = {p.relative_to(ROOT / "ablate").as_posix(): p for p in (ROOT / "ablate").rglob("*.py")}
    assert own < set(paths)
    for name, path in sorted(paths.items()):
        if name not in own:
            calls = [
                node.lineno
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Name) and node.id == "print"
            ]
            assert not calls, (
                f"{name} prints in line {calls}; take ablate.values.terminal.print_text"
            )


def test_an_output_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    assert resolve_output_folder(tmp_path / "new" / "er") == tmp_path / "new" / "er"
    for name in ("file", "loop", "file/x", "n" * 300, "a\0b", "\ud800"):
        with pytest.raises(ConfigError, match=r"^--out: "):
            resolve_output_folder(f"{tmp_path}/{name}")


class Gone(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))

    number = errno.EIO


def test_a_terminal_that_was_closed_ends_nothing(tmp_path: Path) -> None:
    """SIGHUP, which stops the sweep cleanly, may come after the first word that was lost."""
    gone = Gone()
    board = ProgressDisplay(dispatch(specs.plan(), tmp_path), 1, tmp_path / "log", gone)
    board.print_line("a word")
    assert "a word" in (tmp_path / "log").read_text()
    gone.number = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        board.print_line("another")
