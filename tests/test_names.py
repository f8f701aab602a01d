"""Names say what they are: a function begins with a verb; nothing is called by a bare participle.

Not checked: properties, functions that a registry lists, overrides of another class's methods (the
first definition counts), collectives under torch.distributed's names, and the nouns listed here:
mathematical functions, hooks that other packages define, and what other libraries call.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PACKAGES = ("ablate", "trainables", "reports")
LISTS = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"))
VERBS = frozenset(LISTS["verbs"].split())
BARE = re.compile(
    r"(ed|en|told|found|made|held|kept|begun|shown|seen|said|left|gone|done|drawn|sent|meant)$"
)
WORDS = frozenset(LISTS["bare"].split())
NOT_BARE = frozenset(LISTS["allowed"].split())
NOUNS = frozenset(LISTS["nouns"].split())
HOOKS = frozenset(LISTS["hooks"].split())


def is_listed(decorators: list[str]) -> bool:
    """Return whether a registry lists the function, or it is a property."""
    return any(
        re.search(r"property|register|figure\(|metric\(|setter", text) for text in decorators
    )


def iterate_functions() -> Iterator[tuple[str, ast.FunctionDef, list[ast.ClassDef]]]:
    """Yield place, function and class of every method and of every function of a module."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            stack: list[tuple[ast.AST, list[ast.ClassDef]]] = [
                (ast.parse(path.read_text(encoding="utf-8")), [])
            ]
            while stack:
                node, classes = stack.pop()
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.FunctionDef):
                        place = ".".join([*(c.name for c in classes), child.name])
                        yield f"{path.relative_to(ROOT)}: {place}", child, classes
                    elif isinstance(child, ast.ClassDef):
                        stack.append((child, [child]))
                    else:
                        stack.append((child, classes))


def test_functions_begin_with_a_verb() -> None:
    functions = list(iterate_functions())
    methods: dict[str, set[str]] = {}
    for _, function, classes in functions:
        for owner in classes:
            methods.setdefault(owner.name, set()).add(function.name)
    wrong = []
    for place, function, classes in functions:
        name = function.name.strip("_")
        inherited = {
            ast.unparse(base).split("[")[0].split(".")[-1] for c in classes for base in c.bases
        }
        if (
            function.name.startswith("__")
            or name.split("_")[0] in VERBS
            or name in NOUNS | HOOKS
            or is_listed([ast.unparse(each) for each in function.decorator_list])
            or any(function.name in methods.get(base, ()) for base in inherited)
            or name.startswith("on_")
        ):
            continue
        wrong.append(place)
    assert not wrong, "\n".join(["These do not begin with a verb:", *wrong])


def test_nothing_is_called_by_a_bare_participle() -> None:
    names = [
        (place, function.name.strip("_"))
        for place, function, _ in iterate_functions()
        if not function.name.startswith("__")
    ]
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            names.append((str(path.relative_to(ROOT)), path.stem.strip("_")))
            tree = ast.parse(path.read_text(encoding="utf-8"))
            classes = (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
            names += [(f"{path.relative_to(ROOT)}: {n}", n.strip("_").lower()) for n in classes]
    wrong = [
        place
        for place, name in names
        if name not in NOT_BARE | HOOKS
        and "_" not in name
        and (BARE.search(name) is not None or name in WORDS)
    ]
    assert not wrong, "\n".join(["These are participles, pronouns or prepositions:", *wrong])


def test_a_class_name_has_one_home() -> None:
    """Components' nested `Config` excepted: whoever reads a name need not ask which one."""
    homes: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and node.name != "Config":
                    homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert len(homes) > 200
    assert not {name: places for name, places in homes.items() if len(places) > 1}
