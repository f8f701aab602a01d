"""The page of all fields of a spec, from its JSON Schema and the docstrings of its models.

A definition that one field alone names stands in that field's table, by dotted paths. One that
several name has a section of its own, to which they link; so has each of several to choose from (a
loss, a design), below what they all share. Meanings come from docstrings, in which `name: text`
tells a field, those of base classes included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ablate.spec.model import Spec, build_json_schema
from reports.kinds import FIGURES, find_figure_options
from tests.ablate.reference.docstrings import meaning, models, prose, summary
from tests.ablate.reference.markdown import cell, code, link, table
from trainables.data.dataset import DATASETS
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.words.registry import Registry

Node = Mapping[str, Any]
HEAD = ("field", "type", "bounds", "default", "meaning")
BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "minProperties": "at least {}",
    "pattern": "`{}`",
}
TITLES = {"TrialConfig": "trial"}
TAGS = ("name", "design")  # by which one of several is told
PARTS: dict[str, Registry[Any]] = {"loss": LOSSES, "method": METHODS, "data": DATASETS}


def page() -> str:
    """All of it, in Markdown."""
    return "\n\n".join(FieldsPage().sections())


class FieldsPage:
    """Definitions wait in the order in which they are named first.

    titles: of each definition that has a section. choices: the title of a union's section, by its
        first definition. listed: links to all of a union, by its heading.
    """

    def __init__(self) -> None:
        self.schema = build_json_schema()
        self.defs: dict[str, Node] = self.schema["$defs"]
        self.classes = models()
        self.named = _named(self.schema)
        self.titles: dict[str, str] = {}
        self.choices: dict[str, str] = {}
        self.listed: dict[str, list[str]] = {}
        self.waiting: list[tuple[str, Node, type | None, Sequence[str]]] = []

    def sections(self) -> Iterator[str]:
        self.waiting.append(("## sweep", self.schema, Spec, ()))
        while self.waiting:
            title, node, cls, elsewhere = self.waiting.pop(0)
            yield title
            kind, _, name = title.removeprefix("### ").partition(" ")
            if kind in PARTS and name:
                yield summary(PARTS[kind][name])
            if title in self.listed:
                yield f"One of {', '.join(self.listed[title])}."
            elif about := prose(cls):
                yield about
            if rows := list(self.rows("", node, cls, {}, elsewhere)):
                yield table(HEAD, rows)
        yield from self.figures()

    def figures(self) -> Iterator[str]:
        """The options of each kind of figure, which the schema leaves to the kind."""
        for kind in FIGURES:
            options = find_figure_options(kind)
            yield f"### figure {kind}"
            yield prose(options)
            node = options.model_json_schema()
            if rows := list(self.rows("options.", node, options, {})):
                yield table(HEAD, rows)

    # ------------------------------------------------------------------- rows

    def rows(
        self,
        prefix: str,
        node: Node,
        cls: type | None,
        given: Mapping[str, Any],
        elsewhere: Sequence[str] = (),
    ) -> Iterator[tuple[str, ...]]:
        """given: defaults, by the field that holds this definition."""
        for name, inner in node.get("properties", {}).items():
            if name in elsewhere:
                continue
            if name in TAGS and "const" in inner:
                continue  # the heading says it
            path = code(f"{prefix}{name}")
            default = given[name] if name in given else inner.get("default", ...)
            if (below := self.inlined(inner)) is not None:
                own, some = self.classes.get(below), default if isinstance(default, dict) else {}
                absent = "none" if default is None else ""
                yield path, "section", "", absent, cell(meaning(cls, name) or prose(own))
                yield from self.rows(f"{prefix}{name}.", self.defs[below], own, some)
                continue
            kind, bounds = self.kind(inner, name)
            if name in node.get("required", ()):
                shown = "required"
            elif default is ... or (default in ({}, [], ()) or isinstance(default, dict)):
                shown = ""
            else:
                shown = "none" if default is None else code(plain(default))
            about = meaning(cls, name) or inner.get("description") or self.told_there(inner)
            yield path, kind, bounds, shown, cell(about)

    def told_there(self, inner: Node) -> str:
        """Of a field that holds one kind of definition, the first sentence of that."""
        found = {_target(each) for each in _references(inner)}
        about = prose(self.classes.get(found.pop())) if len(found) == 1 else ""
        return about.partition("\n\n")[0]

    def inlined(self, inner: Node) -> str | None:
        """The definition that this field alone names."""
        options = [each for each in inner.get("anyOf", [inner]) if each.get("type") != "null"]
        if len(options) == 1 and "$ref" in options[0]:
            name = _target(options[0])
            return name if len(self.named[name]) == 1 else None
        return None

    # ------------------------------------------------------------------ types

    def kind(self, node: Node, field: str) -> tuple[str, str]:
        """A field's type, with links, and its bounds."""
        if "$ref" in node:
            return self.to_section(_target(node), TITLES.get(_target(node), _target(node))), ""
        several: list[Node] = node.get("oneOf") or node.get("anyOf") or []
        if sum("$ref" in each for each in several) > 1:
            return self.to_choices(node, several, field), ""
        if several:
            parts = [self.kind(each, field) for each in several]
            return _or(text for text, _ in parts), _or(text for _, text in parts if text)
        kind, inner = self.simple(node, field)
        pair = "prefixItems" in node
        own = [
            text.format(node[key])
            for key, text in BOUNDS.items()
            if key in node and not (pair and key == "minItems")
        ]
        return kind, ", ".join([*own, *([f"each {inner}"] if inner else [])])

    def simple(self, node: Node, field: str) -> tuple[str, str]:
        """A type that is no union, and the bounds of what it holds."""
        if "const" in node:
            return code(plain(node["const"])), ""
        if "enum" in node:
            return ", ".join(code(plain(value)) for value in node["enum"]), ""
        kind, inner = node.get("type"), node.get("additionalProperties")
        if kind == "array" and "prefixItems" in node:
            parts = [self.kind(each, field) for each in node["prefixItems"]]
            return f"[{', '.join(text for text, _ in parts)}]", ""
        if kind == "array":
            of, bounds = self.kind(node.get("items", {}), field)
            return f"list of {of}", bounds
        if kind == "object":
            of, bounds = self.kind(inner, field) if isinstance(inner, Mapping) else ("any", "")
            return f"mapping of names to {of}", bounds
        return "none" if kind == "null" else str(kind or "any"), ""

    def to_section(self, name: str, title: str) -> str:
        """A link to a definition's section, which waits to be told if it has not been."""
        if name not in self.titles:
            self.titles[name] = title
            self.waiting.append((f"## {title}", self.defs[name], self.classes.get(name), ()))
        return link(title, self.titles[name])

    def to_choices(self, node: Node, several: Sequence[Node], field: str) -> str:
        """A link to the section of several definitions: what all share, then each with its own."""
        names = [_target(each) for each in several if "$ref" in each]
        if names[0] not in self.choices:
            title = self.choices[names[0]] = f"any {field}" if field != "studies" else "any design"
            tags = {
                ref.rpartition("/")[2]: tag
                for tag, ref in node.get("discriminator", {}).get("mapping", {}).items()
            }
            told = [self.defs[name]["properties"] for name in names]
            shared = [
                key for key in told[0] if all(told[0][key] == other.get(key) for other in told)
            ]
            # One that others derive from (of data sets) has no section beside that of all.
            own = names if tags else names[1:]
            common = [key for key in told[0] if tags and key not in shared]
            base = self.classes[names[0]]
            cls = base if not tags else _common_base([self.classes[name] for name in names])
            self.waiting.append((f"## {title}", self.defs[names[0]], cls, common))
            for name in own:
                tag = tags.get(name) or plain(self.defs[name]["properties"]["name"]["const"])
                kind = "design" if field == "studies" else field
                self.titles[name] = f"{kind} {tag}"
                elsewhere = shared if tags else [key for key in told[0] if key != "name"]
                self.waiting.append(
                    (f"### {kind} {tag}", self.defs[name], self.classes[name], elsewhere)
                )
            known = node.get("properties", {}).get("name", {}).get("enum", [])
            links = [link(self.titles[n].partition(" ")[2], self.titles[n]) for n in own]
            also = [code(each) for each in known if not any(f"[{each}]" in one for one in links)]
            self.listed[f"## {title}"] = [*also, *links]
        return link(self.choices[names[0]], self.choices[names[0]])


def plain(value: Any) -> str:
    """A value as YAML in a line has it."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _or(texts: Any) -> str:
    return " or ".join(dict.fromkeys(texts))


def _target(node: Node) -> str:
    return str(node["$ref"]).rpartition("/")[2]


def _references(node: Any) -> Iterator[Node]:
    """All references below a node."""
    if isinstance(node, Mapping):
        if "$ref" in node:
            yield node
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from _references(value)


def _named(schema: Node) -> dict[str, set[str]]:
    """Definition → the different fields that name it."""
    found: dict[str, set[str]] = {name: set() for name in schema["$defs"]}

    for holder in (schema, *schema["$defs"].values()):
        for name, inner in holder.get("properties", {}).items():
            for each in _references(inner):
                found[_target(each)].add(f"{name} {json.dumps(inner, sort_keys=True)}")
    return found


def _common_base(classes: Sequence[type]) -> type | None:
    """The nearest class that all derive from."""
    return next((c for c in classes[0].__mro__ if all(issubclass(o, c) for o in classes)), None)
