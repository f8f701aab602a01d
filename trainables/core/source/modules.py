"""Modules as syntax trees, and what a name in them stands for. Nothing is imported or run.

A name at the top of a module is a definition of it, or leads by an import to a definition, to a
module, or out of the code that is looked at. Re-exports are followed to where a thing is defined.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from trainables.core.source.places import path_of


class NoSource(Exception):
    """There is no source to be read: built in a notebook or by `exec`, or compiled."""


@dataclass(frozen=True)
class Outside:
    """Something of another package, or built in, by its full name."""

    name: str


@dataclass(frozen=True)
class Inside:
    """A module of the code that is looked at."""

    module: str


@dataclass(frozen=True)
class Definition:
    """A function, class or constant of a module.

    name: dotted for what is inside a class; "*" is all of the module, "!" what importing it does
        besides defining names.
    fields: of a configuration class, its fields too and not its methods alone.
    """

    module: str
    name: str
    fields: bool = False


Target = Outside | Inside | Definition


@dataclass(frozen=True)
class Module:
    """package: that relative imports start from. statements: of the top level.
    names: name → the statements that bind it. imports: name → (module, member or None), of names
    that one import binds, be it for annotations alone. stars: modules whose names are all
    imported. walrus: whether `:=` may be in it.
    effects: the statements that do more than bind names.
    digest: of a compiled module, whose bytes stand for its source."""

    name: str
    package: str = ""
    statements: list[ast.stmt] = field(default_factory=list)
    names: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    walrus: bool = True
    effects: list[ast.stmt] = field(default_factory=list)
    digest: str | None = None


class Bound:
    """What statements bind in their own scope.

    names: all but what `global` and `nonlocal` name, which are `others`. imports: the statements
        among them that import.
    walrus: whether `:=` may be in them, which alone binds within an expression; without it
        expressions are passed over, which are most of a tree.
    """

    def __init__(self, statements: Iterable[ast.AST], *, walrus: bool = True) -> None:
        self.names: set[str] = set()
        self.others: set[str] = set()
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.walrus = walrus
        left = list(statements)
        while left:
            self._look(left.pop(), left)
        self.names -= self.others

    def _look(self, node: ast.AST, left: list[ast.AST]) -> None:
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                self.names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.names.add(node.name)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            walrus = (n.target for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
            self.names.update(target.id for target in walrus)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.imports.append(node)
            self.names.update(name for name, _ in bindings(node, ""))
        elif isinstance(node, ast.Global | ast.Nonlocal):
            self.others.update(node.names)
        elif not isinstance(node, ast.Lambda):
            for name in node._fields:
                value = getattr(node, name)
                if isinstance(value, list):
                    left += [each for each in value if self._may_bind(each)]
                elif isinstance(value, str) and name in ("name", "rest"):
                    self.names.add(value)  # of `except … as name`, and in patterns
                elif self._may_bind(value):
                    left.append(value)

    def _may_bind(self, node: object) -> bool:
        if not isinstance(node, ast.AST):
            return False
        if self.walrus or not isinstance(node, ast.expr):
            return True
        return isinstance(node, ast.Starred) or not isinstance(getattr(node, "ctx", LOAD), ast.Load)


LOAD = ast.Load()


def bindings(
    node: ast.Import | ast.ImportFrom, package: str
) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """(name, (module, member or None)) of an import in a module of `package`."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or name, (name, None)
        return
    source = origin(node, package)
    for alias in node.names:
        if alias.name != "*":
            yield alias.asname or alias.name, (source, alias.name)


def origin(node: ast.ImportFrom, package: str) -> str:
    """The module that is imported from, by its full name."""
    if not node.level:
        return node.module or ""
    above = package.split(".")
    above = above[: len(above) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def type_checking(node: ast.AST) -> bool:
    """Whether a statement is `if TYPE_CHECKING:`."""
    test = getattr(node, "test", None)
    name = getattr(test, "id", None) or getattr(test, "attr", None)
    return isinstance(node, ast.If) and name == "TYPE_CHECKING"


def parsed(name: str, data: bytes, *, is_package: bool) -> Module:
    """A module's statements and names.

    Raises:
        SyntaxError: it is no Python of this version.
    """
    package = name if is_package else name.rpartition(".")[0]
    module = Module(name, package, walrus=b":=" in data)
    late: dict[str, tuple[str, str | None]] = {}
    for node in ast.parse(data).body:
        if isinstance(node, ast.If) and type_checking(node):
            for each in node.body:  # for annotations alone: it binds nothing at run time
                if isinstance(each, ast.Import | ast.ImportFrom):
                    late |= dict(bindings(each, package))
            module.statements.extend(node.orelse)
        else:
            module.statements.append(node)
    for node in module.statements:
        for key in Bound([node], walrus=module.walrus).names:
            module.names.setdefault(key, []).append(node)
    for node in module.statements:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = bindings(node, package)
            module.imports.update((k, v) for k, v in names if len(module.names[k]) == 1)
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                module.stars.append(origin(node, package))
    module.effects.extend(node for node in module.statements if has_effect(node))
    module.imports.update((k, v) for k, v in late.items() if k not in module.names)
    return module


def has_effect(node: ast.stmt) -> bool:
    """Whether a statement at the top of a module does more than bind names."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or _main(node):
        return False
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.Raise):
        return False
    if isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) for t in node.targets):
        return False
    left: list[ast.AST] = [node]
    while left:
        inner = left.pop()
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(inner, ast.Expr) and not isinstance(inner.value, ast.Constant):
            return True
        if isinstance(inner, ast.Attribute | ast.Subscript) and not isinstance(inner.ctx, ast.Load):
            return True
        left += ast.iter_child_nodes(inner)
    return False


def _main(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":`"""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


@cache
def imported(name: str) -> tuple[str, ...]:
    """All that any import in a module names, late ones too: modules, and members of modules."""
    module = read(name)
    names: dict[str, None] = {}
    for node in module.statements if module is not None else ():
        for inner in ast.walk(node):
            if isinstance(inner, ast.Import):
                names |= dict.fromkeys(alias.name for alias in inner.names)
            elif isinstance(inner, ast.ImportFrom) and module is not None:
                source = origin(inner, module.package)
                names |= dict.fromkeys([source, *(f"{source}.{a.name}" for a in inner.names)])
    return tuple(names)


@cache
def read(name: str) -> Module | None:
    """The module of that name, as it was when first asked for: what a process has imported does
    not change when its file does. None: there is none.

    Raises:
        NoSource: it is there, but not as Python.
    """
    path = path_of(name)
    if path is None:
        if name in sys.modules and not hasattr(sys.modules[name], "__path__"):
            raise NoSource(f"{name} has no file")
        return None
    if path.is_dir():  # a package without an __init__.py
        return Module(name)
    try:
        data = path.read_bytes()
        if path.suffix != ".py":
            return Module(name, digest=hashlib.sha256(data).hexdigest())
        return parsed(name, data, is_package=path.name == "__init__.py")
    except (OSError, SyntaxError, ValueError) as error:
        raise NoSource(f"{name} cannot be read: {error}") from error
