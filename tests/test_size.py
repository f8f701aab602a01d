"""`make size` counts statements, not lines, so that squeezing lines changes no number."""

from __future__ import annotations

import runpy
from pathlib import Path

SIZE = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "size.py"))

SOURCE = '''"""A module."""
import os
LIMIT: int = 3
a, _b = 1, 2
table = {}
table["key"] = a; table.update(b=2)


class Counter:
    """A class."""
    def count(self):
        """A method."""
        from sys import path
        return path
    async def wait(self): pass


def _run():
    def inner(): return os
    return inner
'''


def test_statements_are_counted_without_imports_and_docstrings() -> None:
    counts = SIZE["count_source"](SOURCE)
    # LIMIT; a, _b; table; key; update · class, count, return, wait, pass · _run, inner, two returns
    assert counts == {"statements": 14, "functions": 4, "modules": 1, "exports": 4}


def test_the_layout_of_lines_changes_no_count() -> None:
    spread = (
        SOURCE.replace("; ", "\n")
        .replace("pass", "\n        pass\n\n")
        .replace("A method.", "A method\n\n        of many lines.")
    )
    assert SIZE["count_source"](spread) == SIZE["count_source"](SOURCE)


def test_the_folders_add_up_to_the_packages() -> None:
    folders = SIZE["count_folders"]()
    for column in SIZE["COLUMNS"]:
        parts = {name: row[column] for name, row in folders.items() if not name.startswith("tests")}
        packages = sum(parts[f"{name} (all)"] for name in SIZE["PACKAGES"])
        alone = sum(count for name, count in parts.items() if not name.endswith("(all)"))
        assert parts[SIZE["PRODUCT"]] == packages == alone > 100
