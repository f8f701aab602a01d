"""YAML 1.2 values, and one line for everything that is no spec."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ablate.spec.yaml_loader import load, load_text
from trainables.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("-.5", -0.5),
        (".inf", float("inf")),
        ("0x1f", 31),
        ("0o17", 15),
        ("010", 10),
        ("1_000", "1_000"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("2024-01-01", "2024-01-01"),
        ("12:30", "12:30"),
        ("'1'", "1"),
        ("1.", 1.0),
        ("e5", "e5"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    found = load_text(f"a: {text}", "f").data["a"]
    assert found == value and type(found) is type(value)


def test_merge_keys_and_lines() -> None:
    document = load_text("a: &x {b.c: 1, d: 2}\ne:\n  <<: *x\n  d: 3\n", "f")
    assert document.data == {"a": {"b.c": 1, "d": 2}, "e": {"b.c": 1, "d": 3}}
    assert document.lines["e.d"] == 4 and document.lines["a.b.c"] == 1


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join(['*' + a] * 10)}]\n" for a, b in zip("abcde", "bcdef", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3", ["line 3", "'a' twice"]),
        ("a: !!python/object/apply:os.system ['true']", ["line 1", "the tag !!python/object"]),
        ("a: !!binary aGk=", ["the tag !!binary"]),
        ("!!set {a}", ["tag"]),
        ("a:\n\tb: 1", ["line 2", "a tab", "spaces"]),
        ("a: &x [*x]", ["contains itself"]),
        ("a: &x {b: *x}", ["contains itself"]),
        (BOMB, ["once anchors are expanded"]),
        ("[" * 3000, ["nesting too deep"]),
        ("a: " + "[" * 100 + "]" * 100, ["nesting too deep"]),
        ("a: *nobody", ["found *nobody, an undefined alias"]),
        ("a: [1", ["line 1"]),
        ("a: 1\n---\nb: 2", ["found a second document"]),
        ("? [a, b]\n: 1", ["a key that is no text"]),
        ("a: 1\nb: \x07", ["line 2", "the character U+0007"]),
        ("a: 1\0", ["line 1", "U+0000", "UTF-8"]),
        ("a: " + "9" * 5000, ["line 1", "an integer that is too long", "9223372036854775807"]),
        ("a: 0x" + "f" * 4000, ["an integer that is too long"]),
        ("a: 1e400", ["a number that is too large"]),
        ('a: "b\\0c"', ["line 1", r"a NUL character (\x00) in 'b\x00c'"]),
        ('a: 1\n"b\\e[31m": 1', ["line 2", r"a control character (\x1b)"]),
        ('a: "\\ud800"', ["line 1", r"half a character (\ud800)"]),
        ('a: 1\nb: "\\U00110000"', ["line 2", r"found \U00110000"]),
    ],
)
def test_one_line_for_bad_yaml(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(text, "spec.yaml")
    message = str(caught.value)
    assert message.startswith("spec.yaml") and "\n" not in message
    assert "found" in message and "expected" in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "a:\n  b:\n    c: 1\n   d: 2",
            [
                "line 4: found `d: 2`, indented by 3 spaces",
                "4 (as `c:` in line 3), 2 (as `b:` in line 2) or 0 (as `a:` in line 1)",
            ],
        ),
        ("a: 1\n  b: 2", ["line 2: found `b: 2`, indented by 2 below `a: 1`, which has a value"]),
        (" a: 1\nb: 2", ["line 2: found `b: 2`, indented by 0 spaces; expected 1 (as `a:`"]),
        ("a:\n  - b: 1\n   c: 2", ["line 3: found `c: 2`", "4 (as `b:` in line 2), 2 (as `- …`"]),
        ("a:\n  - b: 1\n  c: 2", ["line 3", "a key among list entries", "in line 2"]),
        ("a: 1\n- b", ["line 2: found `- b`, a list entry among keys"]),
        ("a: 1\nbc\n", ["line 2: found `bc`, a line without a colon", "Write `bc:`"]),
        ("a:b\nc: 1", ["line 1: found `a:b`, without a space", "expected `a: b`"]),
        ("a: b: c", ["line 1", "with two colons", 'Write a: "b: c"']),
        ("a: {b: 1\nc: 2", ["line 2: found `: 2` inside { … } of line 1", "a comma or a }"]),
        ("a:\n  b: [1, 2\n", ["line 2: found a [ that is never closed"]),
        ("a: [1]]", ["line 1: found a ] that nothing opens"]),
        ("a: 1\nb: 'it's'", ["line 2: found `s'` after a closing '", "Double the quote"]),
        ('a: "b\nc: 1\n', ['line 1: found `a: "b`, with a quote that is never closed']),
        ("a: @b", ["line 1: found a value that begins with @", 'Write "@b"']),
        ("a: *", ["line 1: found a * in `a: *`"]),
        ("a: &x 1\nb: &x 2", ["line 2: found the anchor &x a second time"]),
        ('a: "\\q"', ["line 1", "a backslash before 'q'"]),
        ("a: |x\n b", ["line 1: found `x` after |"]),
        ("a: - b", ["line 1: found `a: - b`, a list entry on the line of its key"]),
        ("%FOO\na: 1", ["line 1: found `%FOO`"]),
        ("a: 1\n...\nb: 2", ["line 3: found `b: 2` after the end of the text"]),
    ],
)
def test_a_fault_of_layout_is_told_in_words_of_the_file(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(text, "spec.yaml")
    message = str(caught.value)
    assert all(word in message for word in words), message
    for jargon in ("block", "flow", "scalar", "token", "mapping values", "<", "node", "stream"):
        assert jargon not in message, message


def test_an_options_value_has_no_lines() -> None:
    with pytest.raises(ConfigError, match=r"^--set a: found a \[ that is never closed"):
        load_text("[1", "--set a")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: None, "no such file"),
        (lambda p: p.mkdir(), "a folder"),
        (lambda p: p.touch(), "an empty file"),
        (lambda p: p.write_text("# nothing\n"), "an empty file"),
        (lambda p: p.write_bytes(os.urandom(64) + b"\xff\xfe\x00"), "not UTF-8"),
        (lambda p: p.write_bytes(b"a: 1\n" * 300_000), "more than 256 KiB"),
        (lambda p: p.symlink_to(p.name), "symbolic links"),
    ],
)
def test_one_line_for_what_is_no_yaml_file(tmp_path: Path, make: object, words: str) -> None:
    path = tmp_path / "spec.yaml"
    make(path)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
