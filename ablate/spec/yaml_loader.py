"""YAML 1.2 values, read safely.

PyYAML's own loader follows YAML 1.1: `1e-4` is a string, `on` and `no` are booleans, a key given
twice silently wins. Here numbers are numbers, only `true` and `false` are booleans, duplicates and
tags are refused, and anchors are expanded only up to a bound, so that a small file cannot fill the
memory. Every fault is one `ConfigError` with the line where YAML knows it.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from trainables.errors import ConfigError
from trainables.machine.files import open_regular
from trainables.machine.texts import LARGEST, check_text, too_long

MAX_BYTES = 1 << 18  # the parser reads about 150 kB a second
MAX_NODES = 10_000
MAX_DEPTH = 60
SHOWN = 50  # characters of a line that a message quotes

_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": re.compile(r"(?:~|null|Null|NULL|)$"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"),
    "int": re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"),
    "float": re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}
_BEGIN = {"null": ["~", "n", "N", ""], "bool": "tTfF", "int": "-+0123456789"}  # first characters


class _Core(BaseResolver):
    """The core schema of YAML 1.2, plus merge keys (`<<`), which people use."""


_Core.add_implicit_resolver(_TAG + "merge", re.compile(r"<<$"), ["<"])
for _name, _pattern in _SCALARS.items():
    _Core.add_implicit_resolver(_TAG + _name, _pattern, list(_BEGIN.get(_name, "-+.0123456789")))


class _Loader(Reader, Scanner, Parser, Composer, _Core):
    """Text → node graph. No constructor: nothing of a file is ever instantiated."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        _Core.__init__(self)


@dataclass(frozen=True)
class Document:
    """A read file. `lines` maps dotted paths to 1-based lines; keys that hold dots stay whole."""

    name: str
    data: Any
    lines: dict[str, int]


def load(path: str | Path, *, only_regular: bool = False) -> Document:
    """Read one YAML file.

    Args:
        only_regular: refuse a FIFO or a device. The file that a user names may be one
            (`ablate run <(…)`); a file that another one names may not, for nobody may write to it.

    Raises:
        ConfigError: missing, a folder, unreadable, empty, over 256 KiB, not UTF-8, or not YAML.
    """
    path = Path(path)
    name = str(path)
    try:
        with open_regular(path) if only_regular else path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        found = f"an unreadable file ({error.strerror or error})"
        raise ConfigError(name, found, "a YAML file", "Check the path") from None
    if len(raw) > MAX_BYTES:
        size = MAX_BYTES >> 10
        raise ConfigError(
            name, f"a file of more than {size} KiB", "a smaller one", "Split it with `extends:`"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fault = f"a byte that is not UTF-8 at offset {error.start}"
        raise ConfigError(name, fault, "a YAML text file", "Save it as UTF-8") from None
    document = load_text(text, name)
    if document.data is None:
        raise ConfigError(name, "an empty file", "a sweep: name, studies, …", "Fill it in")
    return document


def load_text(text: str, name: str) -> Document:
    """Read YAML from text; `name` stands for the file in messages."""
    try:
        node = _Loader(text).get_single_node()
    except RecursionError:
        raise ConfigError(
            name, "nesting too deep to read", f"at most {MAX_DEPTH} levels", "Flatten it"
        ) from None
    except yaml.YAMLError as error:
        raise _fault(name, text, error) from None
    except (ValueError, OverflowError):  # chr() of an escape
        escapes = re.finditer(r"\\U([0-9a-fA-F]{8})", text)
        beyond = [match for match in escapes if int(match[1], 16) > sys.maxunicode]
        raise ConfigError(name, beyond[0][0], "at most \\U0010ffff", "Correct it") from None
    build = _Build(name)
    data = None if node is None else build.value(node, "", 0)
    return Document(name, data, build.lines)


class _Build:
    """Node graph → plain values, counting every node that aliases repeat."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[str, int] = {}
        self.count = 0
        self.open: set[int] = set()

    def place(self, node: Node) -> str:
        return _place(self.name, _line(node))

    def value(self, node: Node, path: str, depth: int) -> Any:
        self.count += 1
        if self.count > MAX_NODES:
            found = f"more than {MAX_NODES} values once anchors are expanded"
            raise ConfigError(self.place(node), found, "fewer", "Repeat anchors less often")
        if depth > MAX_DEPTH:
            raise ConfigError(
                self.place(node), "nesting too deep", f"at most {MAX_DEPTH} levels", "Flatten it"
            )
        if isinstance(node, ScalarNode):
            return self.scalar(node)
        if id(node) in self.open:
            raise ConfigError(
                self.place(node), "an anchor that contains itself", "a finite value", "Undo it"
            )
        self.open.add(id(node))
        try:
            if isinstance(node, SequenceNode):
                self.refuse_tag(node, "seq")
                return [
                    self.value(child, self.note(f"{path}.{i}".lstrip("."), child), depth + 1)
                    for i, child in enumerate(node.value)
                ]
            assert isinstance(node, MappingNode)
            self.refuse_tag(node, "map")
            return self.mapping(node, path, depth)
        finally:
            self.open.discard(id(node))

    def note(self, path: str, node: Node) -> str:
        self.lines.setdefault(path, _line(node))
        return path

    def refuse_tag(self, node: Node, known: str = "") -> None:
        """Raise for a node whose tag is not the one of its kind."""
        if node.tag != _TAG + known:
            found = f"the tag {node.tag.replace(_TAG, '!!')}"
            raise ConfigError(self.place(node), found, "a plain value", "Remove the tag")

    def mapping(self, node: MappingNode, path: str, depth: int) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, child in node.value:
            if not isinstance(key, ScalarNode):
                found, remedy = "a key that is no text", "Quote it or rename it"
                raise ConfigError(self.place(key), found, "a name", remedy)
            if key.tag == _TAG + "merge":
                for part in child.value if isinstance(child, SequenceNode) else [child]:
                    if not isinstance(part, MappingNode):
                        found = "a merge of no mapping"
                        raise ConfigError(self.place(part), found, "<<: *anchor", "Correct it")
                    merged = self.value(part, path, depth + 1) | merged
                continue
            self.scalar(key)  # refuses tagged keys
            if key.value in own:
                found, remedy = f"the key {key.value!r} twice", "Remove one of the two"
                raise ConfigError(self.place(key), found, "each key once", remedy)
            where = f"{path}.{key.value}".lstrip(".")
            self.lines[where] = _line(key)
            own[key.value] = self.value(child, where, depth + 1)
        return merged | own

    def scalar(self, node: ScalarNode) -> Any:
        tag, text = node.tag.removeprefix(_TAG), node.value
        if tag in ("str", "merge"):
            return check_text(text, self.place(node))
        if tag not in _SCALARS or not _SCALARS[tag].match(text):
            self.refuse_tag(node)
        if tag == "null":
            return None
        if tag == "bool":
            return text.lower() == "true"
        if tag == "int":
            number = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) < 64 else None
            if number is None or abs(number) > LARGEST:
                raise too_long(self.place(node))
            return number
        special = text.lower().replace(".inf", "inf").replace(".nan", "nan")
        if math.isinf(float(special)) and "inf" not in special:
            found = "a number that is too large"
            raise ConfigError(self.place(node), found, "one below 1.8e308", "Lower it")
        return float(special)


# ------------------------------------------------------------------ what no parser can read

# (`context: problem` of PyYAML, whether the fault lies where it began to read, expected, remedy):
# the first that fits.
_FAULTS: tuple[tuple[str, bool, str, str], ...] = (
    ("\\\\t", False, "spaces for indentation", "Replace tabs by spaces"),
    (
        "values are not allowed",
        False,
        "one value after each `key:`",
        "Indent it, or quote the text",
    ),
    ("not find expected ':'", True, "`key: value`", "Add the colon, and a space after it"),
    ("another document", False, "one document", "Make it two files"),
    (
        "expected (<block|'<docu)",
        False,
        "keys, or `- ` entries, in one column",
        "Align or add quotes",
    ),
    ("flow (map|seq|node)", True, "a comma after each entry, and a closing bracket", "Add it"),
    ("quoted scalar: .*(end of stream|document separator)", True, "a closing quote", "Add it"),
    ("quoted scalar", False, "one of YAML's escapes (\\n, \\u00e9)", "Write \\\\ for a backslash"),
    ("undefined alias", False, "an anchor above it", "Define it, or put quotes around the text"),
    ("duplicate anchor", False, "each anchor once", "Rename one of them"),
    ("entries are not allowed", False, "entries on lines below their key", "Move them, or [a, b]"),
)
_UNKNOWN = False, "`key: value` or `- entry`", "Put quotes around text that holds signs"


def _fault(name: str, text: str, error: yaml.YAMLError) -> ConfigError:
    """Return the error for text that PyYAML cannot read: its mark, and what to do about it."""
    if isinstance(error, ReaderError):
        line, code = text.count("\n", 0, error.position) + 1, ord(text[error.position])
        remedy = "Save the file as UTF-8" if code == 0 else "Remove it"
        found = f"the character U+{code:04X}"
        return ConfigError(_place(name, line), found, "text without control characters", remedy)
    assert isinstance(error, yaml.MarkedYAMLError)
    began, met = error.context_mark or error.problem_mark, error.problem_mark
    assert began is not None and met is not None
    lines = [*text.splitlines(), ""]
    words = f"{error.context}: {error.problem}"
    if "\t" in lines[min(met.line, len(lines) - 1)][: met.column + 1]:
        words = "\\t"
    known = (fault[1:] for fault in _FAULTS if re.search(fault[0], words))
    at_start, expected, remedy = next(known, _UNKNOWN)
    line = min(began.line if at_start else met.line, len(lines) - 1)
    shown = lines[line].strip()
    shown = shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"
    found = f"`{shown}`" if words != "\\t" else f"a tab in `{shown}`"
    return ConfigError(_place(name, line + 1), found, expected, remedy)


def _place(name: str, line: int) -> str:
    """`spec.yaml line 3`; an option's value has no lines."""
    return name if name.startswith("-") or not line else f"{name} line {line}"


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1 if node.start_mark else 0
