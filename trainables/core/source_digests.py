"""Digest the source code of a trial's components, and say which digests are one code.

A component is a loss, a method, a data set, or a part of the core (`components.py`). Its digest is

    SHA-256 over (module name, syntax tree) of its modules and of every module of the same
    top-level package that they reach through imports, late ones included,

where a syntax tree stands without docstrings, annotations, comments and the texts of errors. A
component in a module of no package is digested with the modules that lie beside it in its folder.

`digests.json` lists, for each component here, the digests that were shown to give the same numbers
at its REVISION, the newest last (`make golden` writes it), those of version 0.1.0 among them.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

from trainables.core.components import (
    ENTRY_MODULES,
    get_component_registries,
    get_revision,
    list_components,
)

DIGESTS_FILE = Path(__file__).with_name("digests.json")


class NoSource(Exception):
    """A component's source cannot be read: it was made by `exec`, in a notebook, or is compiled."""


def find_module_file(name: str) -> Path | None:
    """Return the source file of a module, without importing it; None if it has none."""
    top, *parents = name.split(".")
    if loaded := sys.modules.get(top):
        roots, file = getattr(loaded, "__path__", ()), getattr(loaded, "__file__", None)
    else:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            return None
        roots, file = spec.submodule_search_locations or (), spec.origin
    if not parents and file is not None:
        return Path(file) if Path(file).suffix == ".py" else None
    bases = [Path(root, *parents) for root in roots]
    paths = (path for base in bases for path in (base / "__init__.py", Path(f"{base}.py")))
    return next((path for path in paths if path.is_file()), None)


@cache
def _parse_module(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return a module's digest and the modules of its package that it imports; None: no source."""
    path = find_module_file(name)
    if path is None:
        return None
    tree = ast.parse(path.read_bytes())
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imported = dict.fromkeys(_iterate_imported_modules(tree, package, path.parent))
    text = json.dumps(_normalize_tree(tree), separators=(",", ":"))
    return sha256(f"{name} {text}".encode()).hexdigest(), tuple(imported)


def _iterate_imported_modules(tree: ast.Module, package: str, folder: Path) -> Iterator[str]:
    """Yield the modules of the same top-level package that a module imports at run time; of one
    without a package those that lie in its folder, unless everybody's packages are there."""
    top = package.partition(".")[0]
    is_shared = any(part in ("site-packages", "dist-packages") for part in folder.parts)
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        guards = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        if isinstance(node, ast.If) and ast.unparse(node.test) in guards:
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
        candidates: list[str] = []
        if isinstance(node, ast.Import):
            candidates = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            source = importlib.util.resolve_name(source, package) if node.level else source
            candidates = [source, *(f"{source}.{alias.name}" for alias in node.names)]
        for name in candidates:
            first = name.partition(".")[0]
            file = find_module_file(first)
            is_beside = file is not None and folder in file.parents[:2]
            is_ours = top == first or (not top and not is_shared and is_beside)
            if is_ours and find_module_file(name) is not None:
                yield name


def _normalize_tree(node: Any) -> Any:
    """Return a tree as nested lists that are equal in all versions of Python.

    Empty fields are left out, because versions differ in which they have; so are docstrings,
    annotations, and the arguments of an error that is raised. Versions differ in where they cut the
    plain text of an f-string, and some put one of no parts into `{x:}`.
    """
    if isinstance(node, list):
        return [
            _normalize_tree(each)
            for each in node
            if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        ]
    if not isinstance(node, ast.AST):
        return f"{type(node).__name__} {node!r}"
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return ["Raise", _normalize_tree(node.exc.func)]
    if isinstance(node, ast.Assert):
        return ["Assert", _normalize_tree(node.test)]
    if isinstance(node, ast.JoinedStr):
        parts: list[Any] = ["JoinedStr"]
        for is_text, values in groupby(node.values, lambda value: isinstance(value, ast.Constant)):
            if is_text:
                parts.append("".join(str(getattr(each, "value", "")) for each in values))
            else:
                parts += [_normalize_tree(each) for each in values]
        return parts
    fields = [
        [name, _normalize_tree(value)]
        for name, value in ast.iter_fields(node)
        if value not in (None, [])
        and not (isinstance(value, ast.JoinedStr) and not value.values)
        and name not in ("annotation", "returns", "type_comment", "kind", "ctx", "type_params")
    ]
    return [type(node).__name__, *fields]


def digest_modules(names: Iterable[str]) -> str:
    """Return one digest of some modules and of all that they reach in their top-level packages, or
    raise NoSource."""
    digests: dict[str, str] = {}
    pending = list(names)
    for name in pending:
        if find_module_file(name) is None:
            raise NoSource(f"{name} is in no Python file")
    while pending:
        name = pending.pop()
        if name not in digests and (parsed := _parse_module(name)) is not None:
            digests[name], imported = parsed
            pending += imported
    return sha256(" ".join(digests[name] for name in sorted(digests)).encode()).hexdigest()[:16]


def digest_class(cls: type) -> str:
    """Return the digest of a loss, a method or a data set, or raise NoSource."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    functions = [
        inspect.unwrap(member) for member in vars(cls).values() if inspect.isfunction(member)
    ]
    made_in = {function.__code__.co_filename for function in functions}
    if file is None or Path(file).suffix != ".py":
        raise NoSource(f"{name} is in no Python file")
    if made_in and file not in made_in and "__dataclass_fields__" not in vars(cls):
        raise NoSource(f"{name} comes from {min(made_in)}, not {file}")
    return digest_modules([cls.__module__])


@cache
def compute_component_digest(component: str) -> tuple[str | None, str]:
    """Return (digest, ""), or (None, why there is no source to digest)."""
    kind, _, name = component.partition(".")
    try:
        if component in ENTRY_MODULES:
            return digest_modules(ENTRY_MODULES[component]), ""
        return digest_class(get_component_registries()[kind][name]), ""
    except NoSource as reason:
        return None, str(reason)


def compute_trial_digests(config: Mapping[str, Any]) -> dict[str, str | None]:
    """Return component → digest of its source, None where it has none that can be read."""
    return {name: compute_component_digest(name)[0] for name in list_components(config)}


@cache
def _read_equal_digests(component: str) -> tuple[str, frozenset[str]]:
    """Return (REVISION, digests that are one code at it) from `digests.json`."""
    listed = json.loads(DIGESTS_FILE.read_text()) if DIGESTS_FILE.is_file() else {}
    entry = listed.get(component, {"revision": "", "hashes": []})
    return str(entry["revision"]), frozenset(entry["hashes"])


def list_equal_digests(component: str, accepted: Iterable[tuple[str, str]] = ()) -> set[str]:
    """Return the digests that are the code of a component as it is now; none if it has no source.

    Args:
        accepted: pairs of digests at its REVISION that a user declared equal (`--same-code`).
    """
    current, _ = compute_component_digest(component)
    if current is None:
        return set()
    revision, listed = _read_equal_digests(component)
    groups = [set(pair) for pair in accepted]
    groups += [set(listed)] if revision == get_revision(component) else []
    equal = {current}
    while grown := [group for group in groups if group & equal and not group <= equal]:
        equal = equal.union(*grown)
    return equal
