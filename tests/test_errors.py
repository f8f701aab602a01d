"""What an error says, and that each `raise` can be read alone."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainables.words.errors import MAX_LENGTH, ConfigError

ROOT = Path(__file__).parents[1]
PACKAGES = ("ablate", "trainables", "reports")


@pytest.mark.parametrize(
    "fault, remedy, message",
    [
        ("5 is odd", "Give an even number", "5 is odd. Give an even number."),
        ("5 is odd.", "Give an even number.", "5 is odd. Give an even number."),
        ("'a' is unknown", "Did you mean 'b'?", "'a' is unknown. Did you mean 'b'?"),
        ("there is no file; name one", "", "there is no file; name one"),
    ],
)
def test_the_message_joins_fault_and_remedy(fault: str, remedy: str, message: str) -> None:
    error = ConfigError("field", fault, remedy)
    for same in (error, pickle.loads(pickle.dumps(error))):
        assert (same.path, same.fault, same.remedy) == ("field", fault, remedy)
        assert same.message == message
        assert str(same) == f"field: {message}"
    assert str(error.move_to("other")) == f"other: {message}"


def test_a_long_value_is_cut_and_the_remedy_stays() -> None:
    error = ConfigError("field", "x" * 10_000, "Give a shorter one")
    assert MAX_LENGTH <= len(error.message) < MAX_LENGTH + 10
    assert error.message.endswith(" Give a shorter one.")
    assert pickle.loads(pickle.dumps(error)).message == error.message
    assert len(ConfigError("field", "x" * 10_000, "y" * 10_000).message) < MAX_LENGTH + 10


def count_words(value: ast.expr) -> int:
    """Return the number of words in a text; 0 for an expression that is no text."""
    match value:
        case ast.Constant(value=str(text)):
            return len(text.split())
        case ast.JoinedStr(values=parts):
            texts = [part.value if isinstance(part, ast.Constant) else "x" for part in parts]
            return len("".join(map(str, texts)).split())
        case ast.IfExp(body=one, orelse=other):
            return max(count_words(one), count_words(other))
        case ast.BinOp(left=one, right=other):
            return count_words(one) + count_words(other)
    return 0


def list_opening_names(argument: ast.expr) -> list[str]:
    """Return the variables with which an argument, or a sentence in it, begins."""
    if isinstance(argument, ast.Name):
        return [argument.id]
    parts = argument.values if isinstance(argument, ast.JoinedStr) else []
    return [
        part.value.id
        for before, part in zip([None, *parts], parts, strict=False)
        if isinstance(part, ast.FormattedValue)
        and isinstance(part.value, ast.Name)
        and (before is None or str(getattr(before, "value", "")).endswith(". "))
    ]


def find_unreadable_errors(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and variable of each error whose fault or remedy stands in a variable before it.

    A variable is accepted if another statement uses it too, or if branches set it.
    """
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))
        raised = {node.exc for node in nodes if isinstance(node, ast.Raise)}
        errors = [
            node
            for node in nodes
            if isinstance(node, ast.Call)
            and (node in raised or ast.unparse(node.func).endswith("Error"))
        ]
        inside = {node for error in errors for node in ast.walk(error)}
        elsewhere = {
            node.id
            for node in nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in inside
        }
        blocks: dict[str, set[int]] = {}  # of each variable, those that set it
        texts = set[str]()
        for number, block in enumerate(
            getattr(node, field)
            for node in nodes
            for field in ("body", "orelse", "finalbody")
            if isinstance(getattr(node, field, None), list)
        ):
            for statement in block:
                match statement:
                    case (
                        ast.Assign(targets=[ast.Name(id=name)], value=value)
                        | ast.AugAssign(target=ast.Name(id=name), value=value)
                    ):
                        blocks.setdefault(name, set()).add(number)
                        texts |= {name} if count_words(value) > 2 else set()
        for error in errors:
            for argument in error.args[len(error.args) > 1 :]:  # the first is the location
                for name in {*list_opening_names(argument)} & texts - elsewhere:
                    if len(blocks[name]) == 1:
                        yield error.lineno, name


@pytest.mark.parametrize("package", PACKAGES)
def test_each_error_can_be_read_alone(package: str) -> None:
    """A text in a variable is read twice, and the digest of a component's source contains it."""
    assert [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for line, name in find_unreadable_errors(file.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize(
    "block, names",
    [
        ('fault = f"{x} is wrong here"\n    raise ConfigError("x", fault)', ["fault"]),
        ('fault = f"{x} is wrong here"\n    raise ConfigError("x", f"{fault}. Mend.")', ["fault"]),
        ('do = "Mend the value"\n    raise ValueError(f"{x} is wrong. {do}.")', ["do"]),
        ('fault = "the "\n    fault += "value is wrong"\n    raise E(fault)', ["fault"]),
        ('do = "Mend the value"\n    return ConfigError("x", "wrong", do)', ["do"]),
        ('where = f"in the study {x}"\n    raise ConfigError(where, "it is wrong", "Mend it")', []),
        ('kinds = ", ".join(x)\n    raise ConfigError("x", f"{kinds} are wrong", "Mend")', []),
        ('text = "the value is wrong"\n    log(text)\n    raise ConfigError("x", text)', []),
    ],
)
def test_a_text_before_an_error_is_found(block: str, names: list[str]) -> None:
    source = f"def check(x):\n    {block}\n"
    assert [name for _, name in find_unreadable_errors(source)] == names


def find_joined_errors(source: str) -> Iterator[int]:
    """Yield the line of each ConfigError whose fault has the remedy as a second sentence."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="ConfigError" | "LedgerDamage"), args=[_, fault]):
                if re.search(r"[.?!] ['\"]?[A-Z{]", ast.unparse(fault)):
                    yield node.lineno


@pytest.mark.parametrize("package", PACKAGES)
def test_fault_and_remedy_are_two_arguments(package: str) -> None:
    assert [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for line in find_joined_errors(file.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ('f"{x} is odd. Give an even number."', [1]),
        ('f"{x} is odd. {REMEDY}"', [1]),
        ('"5 is odd. " "Give an even number."', [1]),
        ('f"{x} is odd", "Give an even number. Write it in digits"', []),
        ('"the file is no text, e.g. an image"', []),
    ],
)
def test_a_remedy_in_the_fault_is_found(arguments: str, lines: list[int]) -> None:
    assert list(find_joined_errors(f'ConfigError("x", {arguments})')) == lines
