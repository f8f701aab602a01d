"""Numbers that papers print, as data: `table("ddml/table4")`.

One YAML file a paper, beside this module. Values stand as printed, in the unit of the file
(per cent) or of the table; what looks like a slip is marked, never corrected. Every file says under
which protocol its numbers were made: `test-selected` means that the epoch was picked on the test
classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field

from reports.errors import ReportError
from reports.recipe import RecipePart

FOLDER = Path(__file__).parent
UNITS = {"percent": 100.0, "one": 1.0}


class Slip(RecipePart):
    """A place where the print contradicts itself. `column` is empty where no number is meant."""

    row: str
    column: str
    printed: float | str
    note: str


class Row(RecipePart):
    """One printed row. `values` and `sd` follow the table's columns; None is a printed dash."""

    name: str
    cites: str | None = None
    coords: dict[str, str | int] = Field({})
    values: tuple[float | None, ...]
    sd: tuple[float | None, ...] | None = None
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class PrintedValue:
    """One printed number: `value` ± `sd` in the table's unit, and the note of a slip if any.

    row: the name of the printed row that it stands in.
    places: digits after the point, as many as any number of its column has.
    """

    value: float
    sd: float | None
    slip: str | None
    scale: float
    places: int = 2
    row: str = ""


class PublishedTable(RecipePart):
    """One printed table. unit: where it is not the paper's."""

    source: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    slips: tuple[Slip, ...] = ()
    paper: str = ""
    protocol: Literal["test-selected", "validation-selected"] = "test-selected"
    unit: Literal["percent", "one"] | None = None

    def get_row(self, name: str) -> Row:
        """Return the row called `name`; ReportError names the rows there are."""
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            row_names = ", ".join(rows)
            raise ReportError(
                f"{self.source} of {self.paper} has no row {name!r}. Its rows are {row_names}."
            )
        return rows[name]

    def find_rows_like(self, patterns: Sequence[str]) -> list[Row]:
        """Return the rows that fit any of the patterns; ReportError names one that fits none."""
        for pattern in patterns:
            if not any(fnmatchcase(row.name, pattern) for row in self.rows):
                self.get_row(pattern)
        return [row for row in self.rows if any(fnmatchcase(row.name, p) for p in patterns)]

    def find_row_at(self, coords: Mapping[str, object]) -> Row | None:
        """Return the row that carries exactly these coordinates, or None."""
        wanted = {key: str(value) for key, value in coords.items()}
        alike = (r for r in self.rows if {k: str(v) for k, v in r.coords.items()} == wanted)
        return next(alike, None) if wanted else None

    def get_printed_value(self, row: Row, column: str) -> PrintedValue | None:
        """Return the printed number, or None for a dash."""
        if column not in self.columns:
            column_names = ", ".join(self.columns)
            raise ReportError(
                f"{self.source} has no column {column!r}. Its columns are {column_names}."
            )
        at = self.columns.index(column)
        value = row.values[at]
        if value is None:
            return None
        slips = (slip.note for slip in self.slips if (slip.row, slip.column) == (row.name, column))
        printed = [
            repr(table_row.values[at])
            for table_row in self.rows
            if table_row.values[at] is not None
        ]
        places = max(len(text.partition(".")[2]) for text in printed)
        unit = UNITS[self.unit or "percent"]
        return PrintedValue(
            value, row.sd[at] if row.sd else None, next(slips, None), unit, places, row.name
        )


class Paper(RecipePart):
    """One paper's printed tables."""

    key: str
    title: str
    authors: str
    protocol: Literal["test-selected", "validation-selected"]
    unit: Literal["percent", "one"]
    tables: dict[str, PublishedTable]


@cache
def load_paper(key: str) -> Paper:
    """Return the paper called `key` (the file's name); ReportError names the papers there are."""
    path = FOLDER / f"{key}.yaml"
    if not path.is_file():
        paper_names = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml")))
        raise ReportError(f"There is no published paper {key!r}. Name one of {paper_names}.")
    return Paper.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def load_published_table(reference: str) -> PublishedTable:
    """Return the table `ddml/table4`, with its paper's title, protocol and unit."""
    key, _, name = reference.partition("/")
    source = load_paper(key)
    if name not in source.tables:
        table_name = ", ".join(f"{key}/{table_name}" for table_name in source.tables)
        raise ReportError(f"There is no published table {reference!r}. Name one of {table_name}.")
    chosen = source.tables[name]
    header = {
        "paper": source.title,
        "protocol": source.protocol,
        "unit": chosen.unit or source.unit,
    }
    return chosen.model_copy(update=header)
