"""YAML 1.2 values, and one line for everything that is no spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.spec.yaml_loader import load_text, load_yaml
from trainables.words.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("0x1f", 31),
        ("0o17", 15),
        ("010", 10),
        ("1_000", "1_000"),
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("~", None),
        ("null", None),
        ("", None),
        ("2024-01-01", "2024-01-01"),
        ("'1'", "1"),
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


# Text, and the line that is named.
FAULTS = [
    ("a: 1\nb: 2\na: 3", 3),
    ("a: !!python/object/apply:os.system ['true']", 1),
    ("a:\n\tb: 1", 2),
    ("a: &x [*x]", 1),
    (BOMB, 0),
    ("[" * 3000, 0),
    ("a: " + "[" * 100 + "]" * 100, 1),
    ("a: *nobody", 1),
    ("a: 1\n---\nb: 2", 2),
    ("? [a, b]\n: 1", 1),
    ("a: 1\nb: \x07", 2),
    ("a: 0x" + "f" * 4000, 1),
    ("a: 1e400", 1),
    ('a: "b\\0c"', 1),
    ('a: 1\n"b\\e[31m": 1', 2),
    ('a: "\\ud800"', 1),
    ("a:\n  b:\n    c: 1\n   d: 2", 4),
    ("a: {b: 1\nc: 2", 2),
    ("a:\n  b: [1, 2\n", 2),
    ("a: 1\nb: 'it's'", 2),
    ("a: &x 1\nb: &x 2", 2),
    ('a: "\\q"', 1),
]


@pytest.mark.parametrize(("text", "line"), FAULTS)
def test_one_line_for_bad_yaml(text: str, line: int) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(text, "spec.yaml")
    assert caught.value.path.startswith(f"spec.yaml line {line}" if line else "spec.yaml")
    assert "\n" not in str(caught.value)


def test_an_options_value_has_no_lines() -> None:
    with pytest.raises(ConfigError, match=r"^--set a: `\[1`"):
        load_text("[1", "--set a")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: None, "No such file"),
        (lambda p: p.mkdir(), "a directory"),
        (lambda p: p.touch(), "the file is empty"),
        (lambda p: p.write_bytes(b"a: \xff"), "not UTF-8"),
        (lambda p: p.write_bytes(b"a: 1\n" * 300_000), "more than 256 KiB"),
        (lambda p: p.symlink_to(p.name), "symbolic links"),
    ],
)
def test_one_line_for_what_is_no_yaml_file(tmp_path: Path, make: object, words: str) -> None:
    path = tmp_path / "spec.yaml"
    make(path)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=words) as caught:
        load_yaml(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
