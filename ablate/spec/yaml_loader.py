"""Read YAML 1.2 safely, with the line of each error.

PyYAML's own loader follows YAML 1.1: `1e-4` is a string, `on` and `no` are booleans, and the last
of equal keys wins silently. Here numbers are numbers, only `true` and `false` are booleans, and
duplicate keys and tags are refused. The number of values after expanding anchors is limited, so
that a small file cannot exhaust the memory.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from ablate.spec.recipes import suggest_recipe
from trainables.words.errors import ConfigError
from trainables.words.files import open_regular
from trainables.words.texts import LARGEST, build_length_error, check_text

MAX_BYTES = 1 << 18  # the parser reads about 150 kB per second
MAX_NODES = 10_000
MAX_DEPTH = 60
SHOWN = 50  # characters of a line that a message quotes
TOO_DEEP = "the values are nested too deep", f"Flatten them to at most {MAX_DEPTH} levels"

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


class _Loader(yaml.SafeLoader):
    """Resolve scalars by the core schema of YAML 1.2, and merge keys (`<<`)."""


_Loader.yaml_implicit_resolvers = {}  # without those of YAML 1.1
_Loader.add_implicit_resolver(_TAG + "merge", re.compile(r"<<$"), ["<"])
for _name, _pattern in _SCALARS.items():
    _Loader.add_implicit_resolver(_TAG + _name, _pattern, list(_BEGIN.get(_name, "-+.0123456789")))


@dataclass(frozen=True)
class Document:
    """The content of a YAML file.

    Attributes:
        name: its name in messages.
        data: its values.
        lines: dotted path → 1-based line; keys with dots are kept as they are.
    """

    name: str
    data: Any
    lines: dict[str, int]


def load_yaml(path: str | Path, *, only_regular: bool = False) -> Document:
    """Read one YAML file.

    Args:
        path: the file.
        only_regular: refuse a FIFO or device. A file that the user names may be a FIFO
            (`ablate run <(…)`); a file named in another file could block for ever.

    Raises:
        ConfigError: The file is missing, a folder, unreadable, empty, over 256 KiB, not UTF-8, or
            not YAML.
    """
    path = Path(path)
    name = str(path)
    try:
        with open_regular(path) if only_regular else path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except FileNotFoundError:
        remedy = suggest_recipe(name, "Check the path.")
        if Path(f"{name}.yaml") in path.parent.glob("*.yaml"):
            remedy = f"Did you mean {name + '.yaml'!r}?"
        raise ConfigError(
            name, "No such file or recipe exists", f"{remedy} `ablate new --help` lists the recipes"
        ) from None
    except OSError as error:
        raise ConfigError(
            name,
            f"the file is unreadable ({error.strerror or error})",
            "Change its permissions, or name another file",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            name, f"byte {error.start} is not UTF-8", "Save the file as UTF-8 text"
        ) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(
            name, f"the file has more than {MAX_BYTES >> 10} KiB", "Split it with `extends:`"
        )
    document = load_text(text, name)
    if document.data is None:
        raise ConfigError(name, "the file is empty", "Write a sweep into it (name, studies, …)")
    return document


def load_text(text: str, name: str) -> Document:
    """Read YAML from text, with `name` as the file's name in messages."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except RecursionError:
        raise ConfigError(name, *TOO_DEEP) from None
    except yaml.YAMLError as error:
        raise _describe_fault(name, text, error) from None
    except (ValueError, OverflowError):  # from chr() of an escape
        raise ConfigError(name, "an escape \\U is above \\U0010ffff", "Remove it") from None
    builder = _Builder(name)
    data = None if node is None else builder.build(node, "", 0)
    return Document(name, data, builder.lines)


class _Builder:
    """Convert a node graph to plain values, and count every node that aliases repeat."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[str, int] = {}
        self.count = 0
        self.ancestors: set[int] = set()

    def place(self, node: Node) -> str:
        """Return the file and line of a node."""
        return _format_place(self.name, _find_line(node))

    def build(self, node: Node, path: str, depth: int) -> Any:
        """Return a YAML node as plain values, and record the line of each path below it."""
        # refuse too many or too deep values, which anchors and aliases can multiply
        self.count += 1
        if self.count > MAX_NODES:
            self.refuse(
                node, f"there are more than {MAX_NODES} values, with aliases", "Remove some"
            )
        if depth > MAX_DEPTH:
            self.refuse(node, *TOO_DEEP)
        if isinstance(node, ScalarNode):
            return self.build_scalar(node)
        if id(node) in self.ancestors:
            self.refuse(node, "an anchor contains its own alias", "Remove the alias")
        # convert a mapping or a list with its children
        self.ancestors.add(id(node))
        try:
            if isinstance(node, MappingNode):
                self.check_tag(node, "map")
                return self.build_mapping(node, path, depth)
            self.check_tag(node, "seq")
            values = []
            for i, child in enumerate(node.value):
                where = f"{path}.{i}".lstrip(".")
                self.lines.setdefault(where, _find_line(child))
                values.append(self.build(child, where, depth + 1))
            return values
        finally:
            self.ancestors.discard(id(node))

    def build_mapping(self, node: MappingNode, path: str, depth: int) -> dict[str, Any]:
        """Return a mapping node as a dict; its keys win over those of mappings that `<<` merges."""
        values: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, child in node.value:
            if not isinstance(key, ScalarNode):
                self.refuse(key, "a key must be text", "Quote or rename it")
            if key.tag == _TAG + "merge":
                for part in child.value if isinstance(child, SequenceNode) else [child]:
                    if not isinstance(part, MappingNode):
                        self.refuse(part, "`<<` merges only mappings", "Write <<: *anchor")
                    merged = self.build(part, path, depth + 1) | merged  # the first one wins
                continue
            self.build_scalar(key)  # refuses tagged keys
            if key.value in values:
                self.refuse(key, f"the key {key.value!r} occurs twice", "Remove one key")
            where = f"{path}.{key.value}".lstrip(".")
            self.lines[where] = _find_line(key)
            values[key.value] = self.build(child, where, depth + 1)
        return merged | values

    def build_scalar(self, node: ScalarNode) -> Any:
        """Return the value of a scalar node: text, a number, a boolean or None."""
        tag, text = node.tag.removeprefix(_TAG), node.value
        if tag in ("str", "merge"):
            return check_text(text, self.place(node))
        if tag not in _SCALARS or not _SCALARS[tag].match(text):
            self.check_tag(node, "")  # refuses the tag
        if tag == "null":
            return None
        if tag == "bool":
            return text.lower() == "true"
        if tag == "int":
            number = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) < 64 else None
            if number is None or abs(number) > LARGEST:
                raise build_length_error(self.place(node))
            return number
        special = text.lower().replace(".inf", "inf").replace(".nan", "nan")
        if math.isinf(float(special)) and "inf" not in special:
            self.refuse(node, "a number is too large", "Write one below 1.8e308")
        return float(special)

    def check_tag(self, node: Node, expected: str) -> None:
        """Refuse any tag except the implicit one of the node's kind."""
        if node.tag != _TAG + expected:
            self.refuse(node, "a value may have no tag", f"Remove {node.tag.replace(_TAG, '!!')}")

    def refuse(self, node: Node, fault: str, remedy: str) -> NoReturn:
        """Raise an error with the line of a node."""
        raise ConfigError(self.place(node), fault, remedy)


def _describe_fault(name: str, text: str, error: yaml.YAMLError) -> ConfigError:
    """Return the error for invalid YAML, with the line that PyYAML reports."""
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return ConfigError(
            _format_place(name, line),
            f"YAML does not allow the character U+{ord(text[error.position]):04X}",
            "Remove it",
        )
    assert isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None
    lines, context = [*text.splitlines(), ""], error.context_mark
    row = min(error.problem_mark.line, len(lines) - 1)
    if not lines[row].strip() and context:  # an unclosed bracket or quote: show where it opens
        row = context.line
    start = f" ({error.context} from line {context.line + 1})" if error.context and context else ""
    return ConfigError(
        _format_place(name, row + 1),
        " ".join(f"`{lines[row].strip()[:SHOWN]}` is no YAML: {error.problem}{start}".split()),
        "Check indentation, colons and brackets, replace tabs by spaces, and quote text with "
        "special characters",
    )


def _format_place(name: str, line: int) -> str:
    """Return `spec.yaml line 3`, or the name alone for the value of an option."""
    return name if name.startswith("-") or not line else f"{name} line {line}"


def _find_line(node: Node) -> int:
    return int(node.start_mark.line) + 1 if node.start_mark else 0
