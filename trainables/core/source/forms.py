"""What normal forms are made of: names, numbered or followed to what they stand for.

A form is text, a `Ref`, or a list of these. It is written field by field and not by `ast.dump`,
which differs between versions of Python.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from trainables.core.source.modules import Definition, Inside, Outside, Target, read
from trainables.core.source.reach import WHOLE, Reach

Form = Any  # None, text, Ref, or a list of these
Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
UNTOLD = {"ctx", "type_comment", "kind", "annotation", "returns", "type_params", "type_ignores"}
READS_ALL = ("globals", "eval", "exec")


@dataclass(frozen=True)
class Ref:
    """Another definition, or several that no order tells apart; its hash takes this place."""

    to: frozenset[Definition]


@dataclass
class Scope:
    """names: bound in it. of_class: seen by its own statements, not by functions in it."""

    names: set[str]
    imports: dict[str, Target] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    of_class: bool = False


class Forms:
    """One definition on its way to its normal form.

    handlers: kind of node → the method that writes it; others are written field by field.
    refs: what it has named so far.
    """

    handlers: ClassVar[dict[str, str]] = {}

    def __init__(self, reach: Reach, found: Definition) -> None:
        self.reach, self.found, self.module = reach, found, found.module
        known = read(found.module)
        self.package = known.package if known is not None else ""
        self.walrus = known is None or known.walrus
        self.scopes: list[Scope] = []
        self.count = 0
        self.refs: list[Ref] = []

    def of(self, node: Any) -> Form:
        """Of a node, or of a field's value."""
        if isinstance(node, list):
            return self.block(node)
        if not isinstance(node, ast.AST):
            return node if isinstance(node, str) else repr(node)
        handler = self.handlers.get(type(node).__name__)
        if handler is not None:
            return getattr(self, handler)(node)
        kind: Any = type(node)
        form: list[Form] = [kind.__name__]
        for name in _fields(kind):
            value = getattr(node, name, None)
            if value is not None and value != []:
                form.append([name, self.of(value)])
        return form

    def block(self, nodes: Iterable[Any]) -> list[Form]:
        """Statements, or other nodes in a row; a statement that says nothing is left out."""
        forms = (self.of(node) if node is not None else ["none"] for node in nodes)
        return [form for form in forms if form is not None]

    def ref(self, *to: Definition) -> Ref:
        self.refs.append(Ref(frozenset(to)))
        return self.refs[-1]

    # ---------------------------------------------------------------- names

    def local(self, name: str) -> Form | Target:
        """The number of a local name, or what it stands for."""
        for depth, scope in enumerate(reversed(self.scopes)):
            if scope.of_class and depth:
                continue
            if name in scope.imports:
                return scope.imports[name]
            if name in scope.names:
                return ["of class", name] if scope.of_class else self.number(scope, name)
        return self.reach.resolve(self.module, name)

    def number(self, scope: Scope, name: str) -> Form:
        if name not in scope.numbers:
            scope.numbers[name] = str(self.count)
            self.count += 1
        return ["local", scope.numbers[name]]

    def stored(self, name: str | None) -> Form:
        """A name that a statement binds without a node of its own."""
        return None if name is None else self.name(ast.Name(name, ast.Store()))

    def name(self, node: ast.Name) -> Form:
        if not isinstance(node.ctx, ast.Load) and not self.scopes:
            if self.found.name == WHOLE:
                return ["bound", node.id]
            return ["bound"] if node.id == self.found.name else ["bound beside"]
        local = self.local(node.id)
        return self.target(local) if isinstance(local, Target) else local

    def target(self, target: Target, *, fields: bool = False) -> Form:
        """fields: of a configuration that is made here, its defaults count as well."""
        if isinstance(target, Outside):
            reads_all = target.name in READS_ALL
            also = [self.ref(Definition(self.module, WHOLE))] if reads_all else []
            return ["outside", target.name, *also]
        if isinstance(target, Inside):
            return self.ref(Definition(target.module, WHOLE))
        node = self.reach.statement(target)
        if node is not None and self.reach.is_config(target.module, node):
            return self.ref(Definition(target.module, target.name, fields))
        if isinstance(node, FUNCTIONS):  # handed on: whether by name it is called is not seen
            return ["function", self.ref(target), by_place(node.args)]
        return self.ref(target)

    def meant(self, node: ast.expr) -> Target | None:
        """What an expression of names and dots stands for; None: something local."""
        if isinstance(node, ast.Name):
            local = self.local(node.id)
            return local if isinstance(local, Target) else None
        if not isinstance(node, ast.Attribute):
            return None
        above = self.meant(node.value)
        if not isinstance(above, Definition):
            return self.reach.attribute(above, node.attr)
        inner = Definition(above.module, f"{above.name}.{node.attr}")
        made = self.reach.statement(inner)
        return inner if made is not None and self.reach.is_config(inner.module, made) else None

    def made(self, target: Target | None) -> ast.stmt | None:
        """The statement of a definition."""
        return self.reach.statement(target) if isinstance(target, Definition) else None


@cache
def _fields(kind: Any) -> list[str]:
    return sorted(set(kind._fields) - UNTOLD)


def by_place(args: ast.arguments) -> list[str]:
    """Parameters that may be given by place or by name; their places number them."""
    return [arg.arg for arg in args.args]
