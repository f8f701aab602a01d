"""The architecture, read from the source: rooms in layers, no circle, nothing out of place.

Every import counts: at the top, inside a function, and under `TYPE_CHECKING`. Each rule is one test
that lists all violations.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("ablate", "trainables", "reports")

# The rooms of the house, upper floors first. A room is a folder with all in it, or one module; it
# may look into rooms below it. Those of one line are neighbours that do not look at each other.
# A file that no room claims has no place: give it one, or the house another room.
LAYERS = """
ablate.testing
ablate.run                ablate.__main__
ablate.cli
ablate
ablate.api
ablate.engine.driver
ablate.backends
ablate.engine
ablate.plugins
ablate.tracking
ablate.sweep
ablate.plan
ablate.spec
ablate.designs
ablate.storage
ablate.results
ablate.ledger           ablate.search        ablate.tracking.payload

reports.foreign
reports.compile         reports.compare
reports.pages
reports.figures         reports.best
reports.tables
reports.frame           reports.stats        reports.papers
reports.store
reports.recipe
reports.kinds
reports

trainables
trainables.jobs
trainables.core
trainables.trial
trainables.methods
trainables.losses       trainables.evaluation
trainables.data
trainables.backbones
trainables.config
trainables.streams      trainables.machine
trainables.words
"""


class Import(NamedTuple):
    """`late`: inside a function. `typed`: under TYPE_CHECKING."""

    module: str
    line: int
    late: bool
    typed: bool


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources() -> dict[str, Path]:
    """Module → file, of all packages."""
    found = {module_name(p): p for package in PACKAGES for p in (ROOT / package).rglob("*.py")}
    assert len(found) > 100, "the packages are not where they should be"
    return dict(sorted(found.items()))


@cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(module: str) -> tuple[Import, ...]:
    """What a module imports: of the packages here down to the module, of others their name."""
    found: list[Import] = []

    def look(node: ast.AST, late: bool, typed: bool) -> None:
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            typed = True
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, late, typed) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import; name the package"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                name = inner if inner in sources() else str(node.module)
                found.append(Import(name, node.lineno, late, typed))
        for child in ast.iter_child_nodes(node):
            look(child, late, typed)

    look(syntax_tree(sources()[module]), late=False, typed=False)
    return tuple(found)


def inside(module: str) -> set[str]:
    """The modules of these packages that a module imports."""
    return {each.module for each in imports(module) if each.module in sources()} - {module}


@cache
def floors() -> dict[str, int]:
    """Room → how far down it stands."""
    return {room: floor for floor, line in enumerate(LAYERS.splitlines()) for room in line.split()}


@cache
def room_of(module: str) -> str | None:
    """The nearest room that claims a module; a package itself claims its `__init__` alone."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        room = ".".join(parts[:length])
        if room in floors() and (room == module or room not in PACKAGES):
            return room
    return None


# ------------------------------------------------------------------------------------- the rules


def test_every_file_has_a_room() -> None:
    homeless = [str(path.relative_to(ROOT)) for m, path in sources().items() if not room_of(m)]
    assert not homeless, f"{homeless}: name them in LAYERS, or move them into a room"


def test_every_room_is_there() -> None:
    empty = [room for room in floors() if not any(room_of(m) == room for m in sources())]
    assert not empty, f"{empty}: rooms of LAYERS with nothing in them"


def test_imports_of_tests_exist() -> None:
    """Mypy does not read `tests/`, and benchmarks and soaks are seldom run."""
    gone = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.module}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in PACKAGES
        if node.module not in sources()
    ]
    assert not gone, f"{gone}: modules that are not here"


def test_arrows_go_down() -> None:
    upward = [
        f"{module} ({room_of(module)}) imports {target} ({room_of(target)})"
        for module in sources()
        for target in sorted(inside(module))
        if room_of(target) != room_of(module)
        and floors()[str(room_of(target))] <= floors()[str(room_of(module))]
    ]
    assert not upward, "\n".join(["These do not stand below:", *upward])


def test_no_circle_of_modules() -> None:
    assert circles({module: inside(module) for module in sources()}) == []


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in number:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], number[target])
        if low[node] == number[node]:
            place = stack.index(node)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for node in graph:
        if node not in number:
            visit(node)
    return found


def test_circles_are_found() -> None:
    """So that the test above cannot pass by finding nothing."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_helpers_of_tests_stand_in_files_of_their_own() -> None:
    """What two test files share is in neither: whoever moves or renames one need not know the
    other."""
    taken = [
        f"{path.relative_to(ROOT)}: {node.module}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("tests")
        and any(
            name.startswith("test_")
            for name in (*(node.module or "").split("."), *(each.name for each in node.names))
        )
    ]
    assert not taken, taken


def test_folders_are_packages_that_import_nothing() -> None:
    """A docstring each; the two ways in, `ablate.run` and `trainables.load`, import late."""
    violations = []
    for path in {path.parent / "__init__.py" for path in sources().values()}:
        if not path.exists() or not ast.get_docstring(syntax_tree(path)):
            violations.append(f"{path}: missing, or without a docstring")
            continue
        for each in imports(module_name(path)):
            ours = each.module.partition(".")[0] in PACKAGES
            way_in = each.late or each.typed
            if ours and not (way_in and path.parent.name in ("ablate", "trainables")):
                violations.append(f"{path}:{each.line} imports {each.module}")
    assert not violations, "\n".join(violations)


# ------------------------------------------------------------------------- other people's packages

RAY_FILE = "trainables.jobs.ray_trainable"
BARRED = {
    "trainables": {"ablate", "reports", "ray", "mlflow", "optuna", "tensorboardX", "wandb"},
    "reports": {"ablate", "trainables", "torch", "ray", "tensorboardX", "tensorboard", "wandb"},
    "ablate": set[str](),
}


def test_packages_import_only_what_they_may() -> None:
    violations = []
    for module in sources():
        barred = BARRED[module.partition(".")[0]]
        if module == RAY_FILE:
            barred = {"ablate", "reports"}
        for each in imports(module):
            top = each.module.partition(".")[0]
            ray_file = module.startswith("trainables") and each.module == RAY_FILE
            shared = each.module.startswith("trainables.words")  # the ground floor of all packages
            if (top in barred and not shared) or ray_file:
                violations.append(f"{module}:{each.line} imports {each.module}")
    assert not violations, "\n".join(violations)


def test_ray_is_used_by_its_public_modules() -> None:
    private = [
        f"{module}:{each.line} imports {each.module}"
        for module in sources()
        for each in imports(module)
        if each.module.partition(".")[0] == "ray" and "._" in each.module
    ]
    assert not private, private


def test_trackers_are_imported_by_their_own_module_and_late() -> None:
    """A run without `--tracker` waits for neither package."""
    packages = {
        "ablate.plugins.tensorboard_files": "tensorboardX",
        "ablate.plugins.wandb_runs": "wandb",
    }
    found = {
        (module, top)
        for module in sources()
        for each in imports(module)
        if (top := each.module.partition(".")[0]) in packages.values()
        and (each.late or not each.typed)
    }
    assert found == set(packages.items())
    early = [
        f"{module}:{each.line}"
        for module in sources()
        for each in imports(module)
        if not (each.late or each.typed)
        and (each.module in packages or each.module.partition(".")[0] in packages.values())
    ]
    assert not early, early


def test_the_reader_sees_imports() -> None:
    """So that the rules above cannot pass by reading nothing."""
    names = {each.module.partition(".")[0] for module in sources() for each in imports(module)}
    assert {"torch", "pydantic", "ray", "mlflow"} <= names


SQL = ("ablate.ledger", "trainables.words.databases")


def test_sql_stands_in_the_ledger_alone() -> None:
    found = [
        f"{module}:{node.lineno}"
        for module, path in sources().items()
        if not module.startswith(SQL)
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_sql(node.value)
    ]
    assert not found, f"SQL outside ablate/ledger: {found}"


def is_sql(text: str) -> bool:
    words = text.split()
    return bool(words) and (
        (words[0] == "SELECT" and "FROM" in words)
        or words[:2] in (["INSERT", "INTO"], ["DELETE", "FROM"], ["CREATE", "TABLE"])
        or (words[0] == "UPDATE" and "SET" in words)
        or words[0] == "PRAGMA"
    )


def test_sql_is_recognised() -> None:
    assert is_sql("SELECT trial_id, count(*) AS n FROM epochs GROUP BY trial_id")
    assert is_sql("UPDATE trials SET heartbeat=? WHERE owner=?")
    assert not is_sql("SELECT a sweep with --sweep")


def test_paths_of_trials_are_made_in_one_place() -> None:
    """An id may be a stranger's: `trainables/core/runtime.py` makes the path, or refuses."""
    made = [
        f"{module}, line {node.lineno}: {ast.unparse(node)}"
        for module, path in sources().items()
        if module not in ("trainables.core.runtime", "reports.compile")  # which checks itself
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _is_trial(node.right)
    ]
    assert not made, "\n".join(["Take `core.runtime` for these:", *made])


def _is_trial(node: ast.expr) -> bool:
    """Whether an expression is the id of a trial, by its name; what a call returns was checked."""
    if isinstance(node, ast.Call):
        return False
    return re.search(r"(^|\W|_)(trial|trial_id|trials\[\d+\])(\W*)$", ast.unparse(node)) is not None
