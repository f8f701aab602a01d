"""Normal forms of expressions, and of functions as far as they have scopes and parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from trainables.core.source.forms import FUNCTIONS, Form, Forms, Function, Scope, by_place
from trainables.core.source.modules import Bound, Definition, Inside, Outside, bindings

LOADERS = ("importlib.import_module", "__import__")


class Expressions(Forms):
    handlers: ClassVar[dict[str, str]] = {
        "Name": "name",
        "Attribute": "attribute",
        "Constant": "constant",
        "JoinedStr": "joined",
        "FormattedValue": "formatted",
        "Call": "call",
        "Lambda": "lambda_form",
        "ListComp": "comprehension",
        "SetComp": "comprehension",
        "GeneratorExp": "comprehension",
        "DictComp": "comprehension",
    }

    def attribute(self, node: ast.Attribute) -> Form:
        target = self.meant(node)
        if target is not None:
            return self.target(target)
        methods = self.reach.config_methods.get(node.attr)
        also = [self.ref(*methods)] if methods else []
        return ["attribute", self.of(node.value), node.attr, *also]

    def constant(self, node: ast.Constant) -> Form:
        value: Any = node.value
        kind = type(value).__name__
        if isinstance(value, float | bytes):
            return [kind, value.hex()]
        if isinstance(value, complex):
            return [kind, value.real.hex(), value.imag.hex()]
        if isinstance(value, int) and not isinstance(value, bool):
            return [kind, hex(value)]
        return [kind, str(value)]

    def joined(self, node: ast.JoinedStr) -> Form:
        parts: list[Form] = []
        for value in node.values:
            form = self.of(value)
            if form[0] == "str" and parts and parts[-1][0] == "str":
                parts[-1] = ["str", parts[-1][1] + form[1]]  # versions differ in where they cut
            else:
                parts.append(form)
        return ["text", parts]

    def formatted(self, node: ast.FormattedValue) -> Form:
        spec = getattr(node.format_spec, "values", None)  # versions differ in an empty one
        return ["shown", self.of(node.value), str(node.conversion), self.block(spec or [])]

    def call(self, node: ast.Call) -> Form:
        """Arguments by name are told by their places, where the function is one of ours."""
        target = self.meant(node.func)
        name = target.name if isinstance(target, Outside) else ""
        if name == "typing.cast" and len(node.args) == 2:
            return self.of(node.args[1])
        also = self._loaded(node.args[0]) if name in LOADERS and node.args else []
        places: list[str] = []
        called: Form
        made = self.made(target)
        if isinstance(target, Definition) and isinstance(made, FUNCTIONS):
            if all(keyword.arg is not None for keyword in node.keywords):
                places = by_place(made.args)
            called = self.ref(target) if places else self.target(target)
        elif isinstance(target, Definition):
            called = self.target(target, fields=True)
        else:
            called = self.of(node.func)
        keywords = [
            [str(places.index(k.arg)) if k.arg in places else ["by name", k.arg], self.of(k.value)]
            for k in node.keywords
        ]
        return ["call", called, self.block(node.args), keywords, *also]

    def _loaded(self, name: ast.expr) -> list[Form]:
        """A module of ours that is imported by a text that stands there, or begins there."""
        first = name.values[0] if isinstance(name, ast.JoinedStr) and name.values else name
        if isinstance(first, ast.FormattedValue):
            first = first.value
        target = self.meant(first)
        if isinstance(target, Definition):
            first = self.reach.value(target) or first
        if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
            return []
        origin = self.reach.inside(first.value)
        return [self.target(origin)] if isinstance(origin, Inside) else []

    # ---------------------------------------------------------------- scopes

    def lambda_form(self, node: ast.Lambda) -> Form:
        defaults = self.defaults(node.args)
        self.scopes.append(self.scope(node.args, []))
        form = ["lambda", defaults, self.parameters(node.args, named=False), self.of(node.body)]
        self.scopes.pop()
        return form

    def function(self, node: Function, decorators: Iterable[ast.expr], *, named: bool) -> Form:
        """named: parameters by name as well, for callers that cannot be told may use it."""
        around = [self.block(decorators), self.defaults(node.args)]
        self.scopes.append(self.scope(node.args, node.body, getattr(node, "type_params", [])))
        parameters = self.parameters(node.args, named=named)
        form = [type(node).__name__, *around, parameters, self.block(node.body)]
        self.scopes.pop()
        return form

    def defaults(self, args: ast.arguments) -> Form:
        return [self.block(args.defaults), self.block(args.kw_defaults)]

    def parameters(self, args: ast.arguments, *, named: bool) -> Form:
        """named: those that may be given by place or by name; those by name alone always are.
        Not the first of a method, which nobody gives by name."""
        scope = self.scopes[-1]

        def of(group: Sequence[ast.arg | None], *, by_name: bool = False) -> list[Form]:
            return [
                [self.number(scope, arg.arg), *([arg.arg] if by_name else [])]
                for arg in group
                if arg is not None
            ]

        own = 1 if len(self.scopes) > 1 and self.scopes[-2].of_class else 0
        return [
            of(args.posonlyargs),
            of(args.args[:own]),
            of(args.args[own:], by_name=named),
            of([args.vararg]),
            of(args.kwonlyargs, by_name=True),
            of([args.kwarg]),
        ]

    def scope(
        self, args: ast.arguments, body: list[ast.stmt], params: Sequence[ast.AST] = ()
    ) -> Scope:
        """Of a function; params: its type parameters."""
        inner = Bound(body, walrus=self.walrus)
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        names = inner.names | {arg.arg for arg in every if arg is not None}
        scope = Scope(names | {str(getattr(param, "name", "")) for param in params})
        for node in inner.imports:
            for name, (source, member) in bindings(node, self.package):
                scope.imports[name] = (
                    self.reach.inside(source)
                    if member is None
                    else self.reach.member(source, member)
                )
        return scope

    def comprehension(self, node: Any) -> Form:
        first = self.of(node.generators[0].iter)  # in the scope around
        targets = [generator.target for generator in node.generators]
        self.scopes.append(Scope(Bound(targets, walrus=False).names))
        generators = [
            [
                self.of(each.target),
                self.of(each.iter) if place else first,
                self.block(each.ifs),
                str(each.is_async),
            ]
            for place, each in enumerate(node.generators)
        ]
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        form = [type(node).__name__, generators, self.block(parts)]
        self.scopes.pop()
        return form
