"""YAML 1.2 values, and one line for everything that is no spec."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ablate.yaml_loader import load, load_text
from trainables.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4), ("1E5", 1e5), ("-.5", -0.5), (".inf", float("inf")), ("0x1f", 31),
        ("0o17", 15), ("010", 10), ("1_000", "1_000"), ("on", "on"), ("off", "off"), ("yes", "yes"),
        ("no", "no"), ("true", True), ("FALSE", False), ("~", None), ("null", None), ("", None),
        ("2024-01-01", "2024-01-01"), ("12:30", "12:30"), ("'1'", "1"), ("1.", 1.0), ("e5", "e5"),
    ],
)  # fmt: skip
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
        ("a: \x07", ["unacceptable character"]),
        ("a: " + "9" * 5000, ["a number that is too long"]),
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
    ("make", "words"),
    [
        (lambda p: None, "no such file"),
        (lambda p: p.mkdir(), "a folder"),
        (lambda p: p.touch(), "an empty file"),
        (lambda p: p.write_text("# nothing\n"), "an empty file"),
        (lambda p: p.write_bytes(os.urandom(64) + b"\xff\xfe\x00"), "not UTF-8"),
        (lambda p: p.write_bytes(b"a: 1\n" * 300_000), "over 1048576 bytes"),
    ],
)
def test_one_line_for_what_is_no_yaml_file(tmp_path: Path, make: object, words: str) -> None:
    path = tmp_path / "spec.yaml"
    make(path)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
