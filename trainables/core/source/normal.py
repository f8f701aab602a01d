"""The normal form of a definition: what of its text can change what it computes.

Left out are docstrings, comments, annotations, imports, `Config`, `check`, REVISION, what is told
to a log, the words of an error, and the entry in a registry. Local names are numbered as they
appear, names from outside stand in full, however they were imported, and the methods of a class
stand in the order of their names.
"""

from __future__ import annotations

import ast
import builtins
from typing import Any, ClassVar

from trainables.core.source.expressions import Expressions
from trainables.core.source.forms import FUNCTIONS, Form, Function, Ref, Scope
from trainables.core.source.modules import (
    Bound,
    Definition,
    Module,
    Outside,
    bindings,
    origin,
    read,
    type_checking,
)
from trainables.core.source.reach import CHECK, CONFIG, EFFECTS, WHOLE, Reach

LOGS = ("logging.", "warnings.warn")
PLAIN_BASES = ("object", "torch.nn.Module", "typing.Protocol", "typing.Generic")


def form_of(reach: Reach, found: Definition) -> tuple[Form, list[Ref]]:
    """The normal form of a definition, with the effects of importing its module; and all other
    definitions that are named in it.

    Raises:
        NoSource: its source cannot be read.
    """
    normal = Normal(reach, found)
    form = [normal.form()]
    effects = reach.effects(found.module) - {found}
    if effects and found.name != EFFECTS:
        form.append(normal.ref(*effects))
    return form, normal.refs


def is_revision(name: str) -> bool:
    """Constants that are raised by hand and stand beside a hash."""
    return name in ("REVISION", "EVALUATOR") or name.endswith("_REVISION")


class Normal(Expressions):
    handlers: ClassVar[dict[str, str]] = {
        **Expressions.handlers,
        "FunctionDef": "inner_function",
        "AsyncFunctionDef": "inner_function",
        "ClassDef": "inner_class",
        "Pass": "nothing",
        "Global": "nothing",
        "Nonlocal": "nothing",
        "TypeAlias": "nothing",
        "Import": "imports",
        "ImportFrom": "imports",
        "Expr": "expression",
        "AnnAssign": "assigned",
        "If": "branch",
        "Assert": "asserted",
        "Raise": "raised",
        "ExceptHandler": "handled",
        "MatchAs": "matched",
        "MatchStar": "matched",
        "MatchMapping": "matched_mapping",
    }

    def form(self) -> Form:
        module = read(self.module)
        assert module is not None
        if module.digest is not None:
            return ["compiled", module.digest]
        if self.found.name == WHOLE:
            return ["module", self.block(module.statements)]
        if self.found.name == EFFECTS:
            return ["effects", self.block(module.effects)]
        return self._definition(module)

    def _definition(self, module: Module) -> Form:
        node, value = self.reach.statement(self.found), self.reach.value(self.found)
        if is_revision(self.found.name):
            return ["revision"]
        if self.reach.is_registry(self.found) and isinstance(value, ast.Call):
            return ["registry", self.block(value.args[:1])]
        if value is not None:
            return ["value", self.of(value)]
        if isinstance(node, FUNCTIONS):
            return self.function(node, node.decorator_list, named=False)
        if isinstance(node, ast.ClassDef):
            return self.of_class(node)
        return ["several", self.block(dict.fromkeys(module.names[self.found.name]))]

    # ---------------------------------------------------------------- functions and classes

    def inner_function(self, node: Function) -> Form:
        of_class = bool(self.scopes) and self.scopes[-1].of_class
        if of_class and node.name == CHECK:
            return None
        name = self.stored(node.name) if self.scopes and not of_class else node.name
        return ["def", name, self.function(node, node.decorator_list, named=True)]

    def inner_class(self, node: ast.ClassDef) -> Form:
        if node.name == CONFIG or self.reach.is_config(self.module, node):
            return None
        of_class = bool(self.scopes) and self.scopes[-1].of_class
        name = self.stored(node.name) if self.scopes and not of_class else node.name
        return ["class", name, self.of_class(node)]

    def of_class(self, node: ast.ClassDef) -> Form:
        """Its methods in the order of their names, after all else in its own order."""
        bases, keywords = self.block(node.bases), self.block(node.keywords)
        if self.reach.descends(self.module, node, _is_error):
            return ["error", bases]
        if self.reach.is_config(self.module, node):
            return self._config(node, bases)
        decorators = self.block(d for d in node.decorator_list if not self._registers(d))
        body = [each for each in node.body if not _apart(each)]
        return [bases, keywords, decorators, self._body(node, body, fields=bool(decorators))]

    def _config(self, node: ast.ClassDef, bases: Form) -> Form:
        """Its methods alone, for its values are part of the trial; unless they are given here."""
        body: list[ast.stmt] = list(self.reach.plain_methods(self.module, node))
        if not self.found.fields:
            return ["config", self._body(node, body)]
        body += [each for each in node.body if isinstance(each, ast.Assign | ast.AnnAssign)]
        return ["config", bases, self._body(node, body)]

    def _body(self, node: ast.ClassDef, body: list[ast.stmt], *, fields: bool = False) -> Form:
        """fields: whether a name that is only annotated makes a field, as in a dataclass."""
        fields = fields or any(
            isinstance(base, Outside) and base.name not in PLAIN_BASES
            for base in self.reach.bases(self.module, node)
        )
        self.scopes.append(Scope(Bound(node.body, walrus=self.walrus).names, of_class=True))
        forms: list[Form] = []
        for each in body:
            if isinstance(each, ast.AnnAssign) and each.value is None:
                if fields and isinstance(each.target, ast.Name):
                    forms.append(["field", each.target.id])
            elif not isinstance(each, FUNCTIONS):
                forms.append(self.of(each))
        methods = [each for each in body if isinstance(each, FUNCTIONS)]
        forms += self.block(sorted(methods, key=lambda method: method.name))
        self.scopes.pop()
        return [form for form in forms if form is not None]

    def _registers(self, decorator: ast.expr) -> bool:
        """Whether a decorator is an entry in a registry."""
        maker = decorator.func if isinstance(decorator, ast.Call) else decorator
        if not (isinstance(maker, ast.Attribute) and maker.attr == "register"):
            return False
        target = self.meant(maker.value)
        return isinstance(target, Definition) and self.reach.is_registry(target)

    # ---------------------------------------------------------------- statements

    def nothing(self, node: ast.stmt) -> Form:
        return None

    def imports(self, node: ast.Import | ast.ImportFrom) -> Form:
        """Nothing; but where a name is bound in several ways an import is one of them."""
        if self.scopes or self.found.name in (WHOLE, EFFECTS):
            return None
        for name, (source, member) in bindings(node, self.package):
            if name == self.found.name:
                reach = self.reach
                reached = reach.inside(source) if member is None else reach.member(source, member)
                return ["import", self.target(reached)]
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            return ["import all", origin(node, self.package)]
        return None

    def expression(self, node: ast.Expr) -> Form:
        if isinstance(node.value, ast.Constant) or self._is_logged(node.value):
            return None
        return ["do", self.of(node.value)]

    def _is_logged(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        target = self.meant(node.func)
        if target is None and isinstance(node.func, ast.Attribute):
            target = self.meant(node.func.value)
        if isinstance(target, Definition):
            value = self.reach.value(target)
            maker = value.func if isinstance(value, ast.Call) else None
            target = self.reach.named(target.module, maker) if maker is not None else None
        return isinstance(target, Outside) and target.name.startswith(LOGS)

    def assigned(self, node: ast.AnnAssign) -> Form:
        if node.value is None:
            return None
        return ["Assign", ["targets", [self.of(node.target)]], ["value", self.of(node.value)]]

    def branch(self, node: ast.If) -> Form:
        if type_checking(node):
            return ["otherwise", self.block(node.orelse)] if node.orelse else None
        return ["if", self.of(node.test), self.block(node.body), self.block(node.orelse)]

    def asserted(self, node: ast.Assert) -> Form:
        return ["assert", self.of(node.test)]

    def raised(self, node: ast.Raise) -> Form:
        """That it raises, and what class; not its words."""
        if node.exc is None:
            return ["raise"]
        target = self.meant(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
        if target is None or isinstance(self.made(target), FUNCTIONS):
            return ["raise", "made"]
        return ["raise", self.target(target)]

    def handled(self, node: ast.ExceptHandler) -> Form:
        kind = None if node.type is None else self.of(node.type)
        return ["except", kind, self.stored(node.name), self.block(node.body)]

    def matched(self, node: Any) -> Form:
        pattern = getattr(node, "pattern", None)
        below = None if pattern is None else self.of(pattern)
        return [type(node).__name__, below, self.stored(node.name)]

    def matched_mapping(self, node: ast.MatchMapping) -> Form:
        parts = [self.block(node.keys), self.block(node.patterns)]
        return ["mapping", *parts, self.stored(node.rest)]


def _is_error(name: str) -> bool:
    builtin = getattr(builtins, name, None)
    return isinstance(builtin, type) and issubclass(builtin, BaseException)


def _apart(node: ast.stmt) -> bool:
    """What of a component's class stands apart from its source: REVISION and Config."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    return bool(names) and all(is_revision(name) or name == CONFIG for name in names)
