"""The code that a component may reach: which packages count, and where a name in them leads."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cached_property

from trainables.core.source.modules import (
    Definition,
    Inside,
    Module,
    NoSource,
    Outside,
    Target,
    imported,
    read,
)
from trainables.core.source.places import local_folder, modules_of

WHOLE, EFFECTS = "*", "!"
CONFIG = "Config"  # the class in a component that holds its configuration
CONFIGS_OF = "pydantic."  # configurations are subclasses of its BaseModel
CHECK = "check"


class Reach:
    """The code of some top-level packages.

    Args:
        packages: their names; the first is that of the component. Beside it count the modules
            that lie in its folder, unless it was installed: a file of helpers beside a file.
    """

    def __init__(self, *packages: str) -> None:
        self.packages = packages
        self.folder = local_folder(packages[0])
        self._mine: dict[str, bool] = dict.fromkeys(packages, True)
        self._effects: dict[str, frozenset[Definition]] = {}
        self._bases: dict[tuple[str, ast.ClassDef], list[Target | None]] = {}

    def mine(self, module: str) -> bool:
        top = module.partition(".")[0]
        if top not in self._mine:
            beside = self.folder is not None and local_folder(top) == self.folder
            self._mine[top] = beside
        return self._mine[top]

    def module(self, name: str) -> Module | None:
        return read(name) if self.mine(name) else None

    # ---------------------------------------------------------------- names

    def resolve(self, module: str, name: str, seen: frozenset[object] = frozenset()) -> Target:
        """What a name at the top of a module of ours stands for."""
        module_read = read(module)
        if module_read is None or (module, name) in seen:
            return Outside(f"{module}.{name}")
        seen |= {(module, name)}
        if name in module_read.imports:
            source, member = module_read.imports[name]
            return self.inside(source) if member is None else self.member(source, member, seen)
        if name in module_read.names:
            return Definition(module, name)
        for star in module_read.stars:
            known = read(star) if self.mine(star) else None
            if known is not None:
                target = self.resolve(star, name, seen)
                if not isinstance(target, Outside) or "." in target.name:
                    return target
        return Outside(name)

    def inside(self, module: str) -> Target:
        return Inside(module) if self.module(module) is not None else Outside(module)

    def member(self, module: str, name: str, seen: frozenset[object] = frozenset()) -> Target:
        """What `module.name` stands for. All of a module of ours, where that cannot be told."""
        source = self.module(module)
        if source is None:
            return Outside(f"{module}.{name}")
        if source.digest is not None:
            return Definition(module, WHOLE)
        if name in source.names or name in source.imports:
            return self.resolve(module, name, seen)
        if read(f"{module}.{name}") is not None:
            return Inside(f"{module}.{name}")
        if name.startswith("__"):
            return Outside(name)
        target = self.resolve(module, name, seen) if source.stars else None
        return target if isinstance(target, Definition | Inside) else Definition(module, WHOLE)

    # ---------------------------------------------------------------- definitions

    def statement(self, found: Definition) -> ast.stmt | None:
        """The one statement that makes a definition; None if there are several."""
        module = read(found.module)
        first, *rest = found.name.split(".")
        bindings = module.names.get(first, []) if module is not None else []
        if len(bindings) != 1:
            return None
        node: ast.stmt | None = bindings[0]
        for name in rest:
            body = node.body if isinstance(node, ast.ClassDef) else []
            node = next((n for n in body if getattr(n, "name", None) == name), None)
        return node

    def value(self, found: Definition) -> ast.expr | None:
        """What a constant is set to, if it is set once and by name."""
        node = self.statement(found)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            return node.value
        if isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) for t in node.targets):
            return node.value
        return None

    def named(self, module: str, node: ast.expr) -> Target | None:
        """What an expression of names and dots stands for at the top of a module."""
        if isinstance(node, ast.Name):
            return self.resolve(module, node.id)
        if isinstance(node, ast.Attribute):
            return self.attribute(self.named(module, node.value), node.attr)
        if isinstance(node, ast.Subscript):  # Generic[T]
            return self.named(module, node.value)
        return None

    def attribute(self, target: Target | None, name: str) -> Target | None:
        if isinstance(target, Inside):
            return self.member(target.module, name)
        if isinstance(target, Outside):
            return Outside(f"{target.name}.{name}")
        return None

    def bases(self, module: str, node: ast.ClassDef) -> list[Target | None]:
        key = (module, node)
        if key not in self._bases:
            self._bases[key] = [self.named(module, base) for base in node.bases]
        return self._bases[key]

    def descends(
        self, module: str, node: ast.ClassDef, test: Callable[[str], bool], depth: int = 32
    ) -> bool:
        """Whether a class has a base, at any height, that is outside and named so."""
        for base in self.bases(module, node):
            if isinstance(base, Outside) and test(base.name):
                return True
            if isinstance(base, Definition) and depth:
                above = self.statement(base)
                if isinstance(above, ast.ClassDef) and self.descends(
                    base.module, above, test, depth - 1
                ):
                    return True
        return False

    def is_config(self, module: str, node: ast.AST) -> bool:
        return isinstance(node, ast.ClassDef) and (
            self.descends(module, node, lambda name: name.startswith(CONFIGS_OF))
        )

    def is_registry(self, found: Definition) -> bool:
        """A table that classes enter by `register`: who is in it is told by their names."""
        value = self.value(found)
        if not isinstance(value, ast.Call):
            return False
        maker = self.named(found.module, value.func)
        made = self.statement(maker) if isinstance(maker, Definition) else None
        return isinstance(made, ast.ClassDef) and any(
            getattr(node, "name", None) == "register" for node in made.body
        )

    # ---------------------------------------------------------------- what no name leads to

    def effects(self, module: str) -> frozenset[Definition]:
        """What is done besides defining names when a module is imported: by it, by the packages
        that it is in, and by all that they import."""
        if module in self._effects:
            return self._effects[module]
        seen: set[str] = set()
        left = [module]
        definitions: set[Definition] = set()
        while left:
            name = left.pop()
            if name in seen or not self.mine(name) or name.partition(".")[0] in self.quiet:
                continue
            seen.add(name)
            known = read(name)
            if known is None:
                continue
            if known.effects:
                definitions.add(Definition(name, EFFECTS))
            parts = name.split(".")
            left += [".".join(parts[:n]) for n in range(1, len(parts))]
            left += imported(name)
        self._effects[module] = frozenset(definitions)
        return self._effects[module]

    @cached_property
    def quiet(self) -> set[str]:
        """Packages looked through as a whole none of whose modules does more than bind names."""
        by_package = {top: modules_of(top) for top in self._whole}
        return {
            top
            for top, names in by_package.items()
            if not any(known.effects for known in map(self._known, names) if known is not None)
        }

    @property
    def _whole(self) -> tuple[str, ...]:
        """The packages that are looked through as a whole: all but that of an outside component,
        which may be anything's part."""
        return self.packages[1:] or self.packages

    def _known(self, name: str) -> Module | None:
        try:
            return read(name)
        except NoSource:
            return None  # nothing that runs can have imported it

    @cached_property
    def config_methods(self) -> dict[str, list[Definition]]:
        """Methods of configurations by name. A component is handed its configuration, so that
        no name in it leads to them."""
        methods: dict[str, list[Definition]] = {}
        for name in self._all_modules():
            module = self._known(name)
            for node in module.statements if module is not None else ():
                for path, inner in _classes(node):
                    if self.is_config(name, inner):
                        for method in self.plain_methods(name, inner):
                            at = Definition(name, f"{path}.{method.name}")
                            methods.setdefault(method.name, []).append(at)
        return methods

    def plain_methods(self, module: str, node: ast.ClassDef) -> list[ast.FunctionDef]:
        """Of a configuration: without validators, whose work shows in the values."""
        return [
            method
            for method in node.body
            if isinstance(method, ast.FunctionDef)
            and method.name != CHECK
            and not any(self._of_pydantic(module, each) for each in method.decorator_list)
        ]

    def _of_pydantic(self, module: str, decorator: ast.expr) -> bool:
        maker = decorator.func if isinstance(decorator, ast.Call) else decorator
        target = self.named(module, maker)
        return isinstance(target, Outside) and target.name.startswith(CONFIGS_OF)

    def _all_modules(self) -> Iterator[str]:
        """Of an outside component's package only what the component imports."""
        for top in self._whole:
            yield from modules_of(top)
        seen: set[str] = set()
        left = [] if self.packages[0] in self._whole else [self.packages[0]]
        while left:
            name = left.pop()
            if name in seen or name.partition(".")[0] in self._whole or not self.mine(name):
                continue
            seen.add(name)
            if self._known(name) is not None:
                yield name
                left += imported(name)


def _classes(node: ast.stmt) -> Iterator[tuple[str, ast.ClassDef]]:
    if isinstance(node, ast.ClassDef):
        yield node.name, node
        for inner in node.body:
            for path, inner_class in _classes(inner):
                yield f"{node.name}.{path}", inner_class
