"""The table of faults names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TABLE = re.compile(r"<!-- faults -->\n(.*?)<!-- end faults -->", re.DOTALL)


def test_each_fault_of_the_table_is_injected_by_a_test() -> None:
    table = TABLE.search((ROOT / "ablate" / "cluster" / "README.md").read_text(encoding="utf-8"))
    assert table is not None
    rows = [line.strip("| ").split(" | ") for line in table[1].strip().splitlines()[2:]]
    assert len(rows) >= 9 and all(len(row) == 4 for row in rows)
    tests = {
        node.name
        for path in (ROOT / "tests" / "faults").glob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    named = [row[3].strip("`| ") for row in rows]
    assert len({*named}) == len(named) and {*named} <= tests
