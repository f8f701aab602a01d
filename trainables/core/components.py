"""Know the code that decides a trial's numbers: its components, their REVISIONs and their digests.

A component is a loss, a method or a data set by its registered name ("loss.triplet"), or a part of
the core. A developer raises its REVISION when a change alters its numbers; ids contain it. Its
digest is

    SHA-256 over (module name, syntax tree) of its modules and of every module of the same
    top-level package that they import, at the top or late, except `trainables.words`, whose names,
    messages and files alter no number.

Docstrings, annotations, comments and texts of errors are left out of the syntax tree. A component
in a module without a package is digested with the modules in the same folder that it imports.

`make golden` writes `digests.json`: for each component the digests, oldest first, that were shown
to give the same numbers at its REVISION. `source.json` of a trial's folder has the digests of the
code that made its files. A worker runs a job only with the driver's code (`Code`), and does not
resume from files that other code made, unless that code's digest is listed as equal.
"""

import ast
import contextlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

OWN_REVISION = ("backbones", "folding", "adapters", "features", "resizing")
CORE_REVISION = 1  # of training loop, optimiser, schedule, splits, sampling and augmentation
DIGESTS_FILE = Path(__file__).with_name("digests.json")
WORDS = "trainables.words"
EVALUATOR = "evaluator"  # computes metrics; `metrics.EVALUATOR` takes the place of a REVISION

ENTRY_MODULES: dict[str, tuple[str, ...]] = {
    "core": ("trainables.core.trainer", "trainables.core.assembly"),
    "optimizer": ("trainables.core.optimizer",),
    "sampler": ("trainables.data.sampler",),
    "splits": ("trainables.data.splits",),
    "augmentation": ("trainables.data.augment",),
    "resizing": ("trainables.data.resizing",),
    "backbones": tuple(f"trainables.backbones.{name}" for name in ("backbone", "own_models")),
    "folding": ("trainables.backbones.frozen_norms",),
    "adapters": ("trainables.backbones.adapters",),
    "features": ("trainables.data.features",),
    EVALUATOR: (
        "trainables.evaluation.metrics",
        "trainables.jobs.ensemble",
        "trainables.core.evaluator",
    ),
}


def get_component_registries() -> dict[str, Any]:
    """Return the registries of losses, methods and data sets, by the prefix of component names."""
    from trainables.data.dataset import DATASETS
    from trainables.losses.base import LOSSES
    from trainables.methods.base import METHODS

    return {"loss": LOSSES, "method": METHODS, "data": DATASETS}


def is_known(component: str) -> bool:
    """Return whether this installation has the component."""
    kind, _, name = component.partition(".")
    return component in ENTRY_MODULES or name in get_component_registries().get(kind, ())


def list_components(config: Mapping[str, Any]) -> list[str]:
    """Return the components that decide a trial's weights, from its dumped configuration.

    The evaluator is not among them, because a trained network can be evaluated again.
    """
    backbone, data = config["backbone"], config["data"]
    parts = ["core", "optimizer", "sampler", "splits", "augmentation", "backbones"]
    if backbone["mode"] == "frozen":
        parts.append("features")
    elif backbone["mode"] != "finetune":  # a part of the backbone trains
        parts.append("adapters")
    elif backbone["freeze_bn"]:
        parts.append("folding")
    # the condition of `DataConfig.uses_antialiasing`, for a dumped configuration
    options = [data.get("eval_resize"), data.get("stored_side")]
    options += [data.get("augment", {}).get(name) for name in ("interpolation", "resize")]
    if any(value is not None for value in options):
        parts.append("resizing")
    return [*(f"{kind}.{config[kind]['name']}" for kind in ("loss", "method", "data")), *parts]


def get_revision(component: str) -> str:
    """Return a component's REVISION, which a developer raises when its numbers change."""
    kind, _, name = component.partition(".")
    if registry := get_component_registries().get(kind):
        return str(registry[name].REVISION)
    if component in OWN_REVISION:  # a part of the core whose module has its own REVISION
        return str(import_module(ENTRY_MODULES[component][0]).REVISION)
    from trainables.evaluation import metrics  # `metrics.EVALUATOR` is the evaluator's revision

    return metrics.EVALUATOR if component == EVALUATOR else str(CORE_REVISION)


class NoSource(Exception):
    """A component's source cannot be read: `exec` or a notebook made it, or it is compiled."""


def find_module_file(name: str) -> Path | None:
    """Return a module's source file without importing the module; None if it has no source."""
    # find the files of its top-level package
    top, *below = name.split(".")
    roots: Iterable[str] = ()
    file: str | None = None
    if loaded := sys.modules.get(top):
        roots, file = getattr(loaded, "__path__", ()), getattr(loaded, "__file__", None)
    else:
        with contextlib.suppress(ImportError, ValueError):
            if spec := importlib.util.find_spec(top):
                roots, file = spec.submodule_search_locations or (), spec.origin
    if not below and file is not None:  # the top-level module itself is wanted
        return Path(file) if Path(file).suffix == ".py" else None

    # find the module below the folders of its top-level package
    bases = [Path(root, *below) for root in roots]
    paths = (path for base in bases for path in (base / "__init__.py", Path(f"{base}.py")))
    return next((path for path in paths if path.is_file()), None)


@cache
def _parse_module(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return a module's digest and what it imports from its package; None if it has no source."""
    path = find_module_file(name)
    if path is None:
        return None
    tree = ast.parse(path.read_bytes())
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imported = dict.fromkeys(_iterate_imported_modules(tree, package, path.parent))
    text = json.dumps(_normalize_tree(tree), separators=(",", ":"))
    return sha256(f"{name} {text}".encode()).hexdigest(), tuple(imported)


def _iterate_imported_modules(tree: ast.Module, package: str, folder: Path) -> Iterator[str]:
    """Yield the modules that a module imports at run time from its own top-level package.

    For a module without a package, yield the modules of its folder, unless in `site-packages`.
    """
    top = package.partition(".")[0]  # empty for a module without a package
    is_site_packages = any(part in ("site-packages", "dist-packages") for part in folder.parts)
    for name in _iterate_import_names(tree, package):
        first = name.partition(".")[0]
        file = find_module_file(first)
        # a module of the folder, or a package in it
        is_in_folder = file is not None and folder in file.parents[:2]
        is_own = top == first or (not top and not is_site_packages and is_in_folder)
        if is_own and not name.startswith(WORDS) and find_module_file(name) is not None:
            yield name


def _iterate_import_names(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the absolute names of all that a module imports, except under `if TYPE_CHECKING`."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        guards = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        if isinstance(node, ast.If) and ast.unparse(node.test) in guards:
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            source = importlib.util.resolve_name(source, package) if node.level else source
            yield source  # and each imported name, which may be a module too
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _normalize_tree(node: Any) -> Any:
    """Return a syntax tree as nested lists that are equal in all versions of Python.

    Docstrings, annotations and arguments of raised errors are left out. So are empty fields, in
    which versions of Python differ, and an empty format (`{x:}`). Neighbouring texts of an f-string
    are joined, because versions split them differently.
    """
    if isinstance(node, list):
        return [
            _normalize_tree(child)
            for child in node
            if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant))
        ]
    if not isinstance(node, ast.AST):  # the value of a field
        return f"{type(node).__name__} {node!r}"
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return ["Raise", _normalize_tree(node.exc.func)]
    if isinstance(node, ast.Assert):  # without its message
        return ["Assert", _normalize_tree(node.test)]
    if isinstance(node, ast.JoinedStr):
        parts: list[Any] = ["JoinedStr"]
        for is_text, values in groupby(node.values, lambda value: isinstance(value, ast.Constant)):
            if is_text:
                parts.append("".join(str(getattr(value, "value", "")) for value in values))
            else:
                parts += [_normalize_tree(value) for value in values]
        return parts
    fields = [
        [name, _normalize_tree(value)]
        for name, value in ast.iter_fields(node)
        if value not in (None, [])
        and not (isinstance(value, ast.JoinedStr) and not value.values)  # an empty format
        and name not in ("annotation", "returns", "type_comment", "kind", "ctx", "type_params")
    ]
    return [type(node).__name__, *fields]


def digest_each_module(names: Iterable[str]) -> dict[str, str]:
    """Return the digests of the named modules and of all they import from their own packages.

    Raises:
        NoSource: one of `names` has no Python file.
    """
    pending, digests = list(names), dict[str, str]()
    for name in pending:
        if find_module_file(name) is None:
            raise NoSource(f"The module {name} has no Python file")
    while pending:
        name = pending.pop()
        if name not in digests and (parsed := _parse_module(name)) is not None:
            digests[name], imported = parsed
            pending += imported
    return digests


def digest_modules(names: Iterable[str]) -> str:
    """Return one digest of the named modules and of all they import, as `digest_each_module`."""
    digests = digest_each_module(names)
    return sha256(" ".join(digests[name] for name in sorted(digests)).encode()).hexdigest()[:16]


def digest_class(cls: type) -> str:
    """Digest the module of a loss, method or data set; raise NoSource if the class has no file."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is None or Path(file).suffix != ".py":
        raise NoSource(f"The class {name} is not defined in a Python file")
    functions = [inspect.unwrap(item) for item in vars(cls).values() if inspect.isfunction(item)]
    function_files = {function.__code__.co_filename for function in functions}
    is_foreign = bool(function_files) and file not in function_files
    # a dataclass may have only generated functions, which no file contains
    if is_foreign and "__dataclass_fields__" not in vars(cls):
        raise NoSource(f"The class {name} was made in {min(function_files)}, not in {file}")
    return digest_modules([cls.__module__])


@cache
def compute_component_digest(component: str) -> tuple[str | None, str]:
    """Return (digest, ""), or (None, reason) if the component's source cannot be read."""
    kind, _, name = component.partition(".")
    try:
        if component in ENTRY_MODULES:
            return digest_modules(ENTRY_MODULES[component]), ""
        return digest_class(get_component_registries()[kind][name]), ""
    except NoSource as reason:
        return None, str(reason)


def compute_trial_digests(config: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the digest of each component of a trial; None where its source cannot be read."""
    return {name: compute_component_digest(name)[0] for name in list_components(config)}


@cache
def _read_equal_digests(component: str) -> tuple[str, frozenset[str]]:
    """Return from `digests.json` a component's REVISION and its digests with equal numbers."""
    listed = json.loads(DIGESTS_FILE.read_text()) if DIGESTS_FILE.is_file() else {}
    entry = listed.get(component, {"revision": "", "hashes": []})
    return str(entry["revision"]), frozenset(entry["hashes"])


def list_equal_digests(component: str, accepted: Iterable[tuple[str, str]] = ()) -> set[str]:
    """Return the digests of code that is equal to a component's; empty if its source is unreadable.

    `accepted` has pairs of digests, at the component's present REVISION, that a user declared equal
    (`--same-code`).
    """
    current, _ = compute_component_digest(component)
    if current is None:
        return set()
    revision, listed = _read_equal_digests(component)
    groups = [set(pair) for pair in accepted]
    groups += [set(listed)] if revision == get_revision(component) else []
    # join all groups that share a digest, until none adds one
    equal = {current}
    while connected := [group for group in groups if group & equal and not group <= equal]:
        equal = equal.union(*connected)
    return equal


@dataclass(frozen=True, slots=True)
class Code:
    """The driver's code of a trial's components, by component name."""

    hashes: Mapping[str, str | None]  # digest of the source; None where it cannot be read
    revisions: Mapping[str, str]
    same: Mapping[str, tuple[str, ...]]  # digests of sources that give the same numbers


def list_differing_components(code: Code) -> list[str]:
    """Return the components whose source or REVISION here differs from the driver's."""
    return [
        name
        for name, source_hash in code.hashes.items()
        if not is_known(name)
        or compute_component_digest(name)[0] != source_hash
        or get_revision(name) != code.revisions[name]
    ]
