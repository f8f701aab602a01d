"""Which package may import which, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SWEEP = {"ray", "mlflow", "optuna"}
RAY_FILE = ROOT / "trainables" / "jobs" / "ray_trainable.py"


def sources(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert found, f"no sources of {package}"
    return found


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """Each imported module by its full name, and whether the import is inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in late
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; name the package"
            yield node.module or "", id(node) in late


def top(name: str) -> str:
    return name.partition(".")[0]


def test_the_reader_sees_imports() -> None:
    """So that the rules below cannot pass by reading nothing."""
    names = {top(name) for path in sources("trainables") for name, _ in imported(path)}
    assert {"torch", "pydantic", "trainables"} <= names


@pytest.mark.parametrize("path", sources("trainables"), ids=lambda p: str(p.relative_to(ROOT)))
def test_trainables(path: Path) -> None:
    barred = {"ablate", "reports"} | (set() if path == RAY_FILE else SWEEP)
    for name, late in imported(path):
        assert top(name) not in barred, f"{path} imports {name}"
        if top(name) == "faiss":
            assert path.is_relative_to(ROOT / "trainables" / "evaluation"), f"{path}: faiss"
            assert late, f"{path} imports faiss when it is loaded; do so where it is used"
        if name == "trainables.jobs.ray_trainable":
            raise AssertionError(f"{path} imports the Ray file")


@pytest.mark.parametrize("path", sources("reports"), ids=lambda p: str(p.relative_to(ROOT)))
def test_reports(path: Path) -> None:
    for name, _ in imported(path):
        assert top(name) not in {"torch", "ray", "trainables", "ablate"}, f"{path}: {name}"
