"""Cells of a CSV file that a spreadsheet shows, and does not run.

A spreadsheet takes text that begins with one of these signs for a formula, which may read other
files or call out. Names come from specs and folders of pictures; so such text is written behind an
apostrophe, which a spreadsheet hides. Numbers stay numbers, whatever sign they have.
"""

from __future__ import annotations

from typing import Any

SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def guarded(value: Any) -> Any:
    """`value`, text that would be a formula as `'=…`."""
    if not isinstance(value, str) or not value.startswith(SIGNS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
