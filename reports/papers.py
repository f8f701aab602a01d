"""Load the numbers that papers print, as in `load_published_table("ddml/table4")`.

This folder has one YAML file for each paper. Values stand as printed, in the unit of the file
(per cent) or of the table; apparent slips are marked, never corrected. Every file names the
protocol of its numbers: `test-selected` means that the epoch was picked on the test classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field

from reports.recipe import PrintedRows, RecipePart
from trainables.words.errors import ReportError

FOLDER = Path(__file__).with_name("published")
UNITS = {"percent": 100.0, "one": 1.0}
DATA_SETS = {  # beginning of a column, or a table's `data` → data set: its name here, and in papers
    "CUB": ("cub200", "CUB-200-2011"),
    "CAR": ("cars196", "Cars196"),
    "SOP": ("sop", "Stanford Online Products"),
    "INSHOP": ("inshop", "In-Shop Clothes Retrieval"),
}


class Slip(RecipePart):
    """A contradiction in print. `column` is empty where it is not about a number."""

    row: str
    column: str
    printed: float | str
    note: str


class PublishedRow(RecipePart):
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

    row: the name of its printed row.
    places: digits after the point, as many as any number of its column has.
    """

    value: float
    sd: float | None
    slip: str | None
    scale: float
    places: int = 2
    row: str = ""


class PublishedTable(RecipePart):
    """One printed table. unit: given if it is not the paper's. data: if its columns do not say."""

    source: str
    data: str = ""
    caption: str
    columns: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    slips: tuple[Slip, ...] = ()
    paper: str = ""
    protocol: Literal["test-selected", "validation-selected"] = "test-selected"
    unit: Literal["percent", "one"] | None = None

    def find_data_set(self, column: str) -> tuple[str, str]:
        """Return the name of a column's data set here and in papers; two empty texts if unknown."""
        return DATA_SETS.get(self.data or column.partition("/")[0], ("", ""))

    def get_row(self, name: str) -> PublishedRow:
        """Return the row called `name`; ReportError lists the names of all rows."""
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(row.name for row in self.rows)
        raise ReportError(
            f"{self.source} of {self.paper} has no row {name!r}. Its rows are {names}."
        )

    def find_rows_like(self, patterns: Sequence[str]) -> list[PublishedRow]:
        """Return the rows that fit any of the patterns; ReportError names one that fits none."""
        for pattern in patterns:
            if not any(fnmatchcase(row.name, pattern) for row in self.rows):
                self.get_row(pattern)  # raises ReportError
        return [row for row in self.rows if any(fnmatchcase(row.name, p) for p in patterns)]

    def find_row_at(self, coords: Mapping[str, object]) -> PublishedRow | None:
        """Return the first printed row with exactly these coordinates; None without any."""
        texts = {key: str(value) for key, value in coords.items()}  # if empty, no row matches
        for row in self.rows:
            if texts and {key: str(value) for key, value in row.coords.items()} == texts:
                return row
        return None

    def get_printed_value(self, row: PublishedRow, column: str) -> PrintedValue | None:
        """Return the number that the paper prints in a row and column; None for a dash."""
        if column not in self.columns:
            names = ", ".join(self.columns)
            raise ReportError(f"{self.source} has no column {column!r}. Its columns are {names}.")
        i = self.columns.index(column)
        value, sd = row.values[i], row.sd[i] if row.sd else None
        if value is None:
            return None
        slips = [slip.note for slip in self.slips if (slip.row, slip.column) == (row.name, column)]
        texts = [repr(other.values[i]) for other in self.rows if other.values[i] is not None]
        places = max(len(text.partition(".")[2]) for text in texts)  # digits after the point
        scale = UNITS[self.unit or "percent"]
        return PrintedValue(value, sd, slips[0] if slips else None, scale, places, row.name)


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
    """Return the paper whose file is called `key`; ReportError lists all papers."""
    path = FOLDER / f"{key}.yaml"
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml")))
        raise ReportError(f"There is no published paper {key!r}. Name one of {names}.")
    return Paper.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def load_published_table(reference: str) -> PublishedTable:
    """Return a printed table such as `ddml/table4`, with its paper's title, protocol and unit."""
    key, _, name = reference.partition("/")
    paper = load_paper(key)
    if name not in paper.tables:
        names = ", ".join(f"{key}/{table_name}" for table_name in paper.tables)
        raise ReportError(f"There is no published table {reference!r}. Name one of {names}.")
    table = paper.tables[name]
    unit = table.unit or paper.unit
    update = {"paper": paper.title, "protocol": paper.protocol, "unit": unit}
    return table.model_copy(update=update)


def compute_printed_gain(rows: PrintedRows) -> float:
    """Return the printed row minus its baseline row, between 0 and 1.

    ReportError: the paper has no such table, row or column, or prints a dash.
    """
    table = load_published_table(rows.table)
    numbers = []
    for name in (rows.row, rows.baseline):
        number = table.get_printed_value(table.get_row(name), rows.column)
        if number is None:
            raise ReportError(
                f"{table.source} of {table.paper} has a dash for {rows.column} of {name!r}. "
                "Name another column."
            )
        numbers.append(number)
    return (numbers[0].value - numbers[1].value) / numbers[0].scale
