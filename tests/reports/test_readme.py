"""The README's numbers come from a report."""

from __future__ import annotations

import pytest

from reports.errors import ReportError
from reports.readme import filled

REPORT = """# Title

- Sweep: demo (0123)
- First started: 2026-01-02
- Data set: typefaces
- Commit: 0123456789abcdef
- Device: cpu
- Threads: 1

## Tables

### One

| a | b |
| - | - |
| 1 | 2 |

- note

### Two

| c |

- note
- of its own

## Figures
"""
README = """before
<!-- report demo -->
stale
<!-- table: One -->
| 9 | 9 |
<!-- end report -->
after
"""


def test_tables_replace_what_stood_there_and_again() -> None:
    once = filled(README, REPORT)
    assert "| 1 | 2 |" in once and "- note" in once
    assert "stale" not in once and "| 9 | 9 |" not in once and "| c |" not in once
    assert once.startswith("before\n") and once.endswith("<!-- end report -->\nafter\n")
    assert filled(once, REPORT) == once


def test_a_note_of_several_tables_is_told_once() -> None:
    both = filled(README.replace("One -->", "One -->\n<!-- table: Two -->"), REPORT)
    assert both.count("- note") == 1 and both.index("- note") < both.index("| c |")
    assert "| c |\n\n- of its own\n<!-- end" in both


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ReportError, match="One, Two"):
        filled(README.replace("table: One", "table: Three"), REPORT)
    with pytest.raises(ReportError, match="report demo"):
        filled("nothing", REPORT)
