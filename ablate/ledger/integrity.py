"""Whether a ledger is whole, as far as SQLite can tell."""

from __future__ import annotations

import re
import sqlite3

from ablate.ledger.records import Records

FAULTS = 10_000  # at most
SEES_NULLS = ((3, 40, 0), (3, 40, 1))


def damage(records: Records, sqlite: tuple[int, ...] = sqlite3.sqlite_version_info) -> list[str]:
    """What SQLite's own check finds wrong.

    Versions 3.40.0 and 3.40.1 see NULLs that are not there; theirs are looked for.
    """
    complaints = [row["quick_check"] for row in records.rows(f"PRAGMA quick_check({FAULTS})")]
    if sqlite[:3] in SEES_NULLS:
        complaints = [text for text in complaints if not _no_such_null(records, text)]
    return [text for text in complaints if text != "ok"]


def _no_such_null(records: Records, text: str) -> bool:
    named = re.fullmatch(r"NULL value in (\w+)\.(\w+)", text)
    if named is None:
        return False
    table, column = named.groups()
    return not records.rows(f'SELECT 1 FROM "{table}" WHERE "{column}" IS NULL LIMIT 1')
