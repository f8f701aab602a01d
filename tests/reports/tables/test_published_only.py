"""Printed rows that nobody trains, and how far measured numbers are from printed ones."""

from __future__ import annotations

from typing import Any

import pytest

from reports.errors import ReportError
from reports.pages import csv_table, markup
from reports.published.papers import table as printed
from reports.recipe import Table
from reports.tables.build import build
from reports.tables.model import TableData
from reports.tables.verdict import verdicts
from tests.reports.made import frame

METRIC = "test/recall_at_1"
ROWS = {"PA": "Proxy-Anchor 512", "DetReg": "Ours 512"}


def made(**published: Any) -> TableData:
    told = {"table": "detreg/table1", "columns": {METRIC: "CUB/R@1"}, "rows": ROWS, **published}
    variants = [{"variant": name} for name in ROWS]
    cells = frame(
        "compare",
        variants,
        lambda at, seed: 0.6 + 0.01 * seed,
        names=[*ROWS],
        metric=METRIC,
    )
    found = build(cells, Table(kind="compare", study="s", metrics=(METRIC,), published=told))
    assert isinstance(found, TableData)
    return found


def test_all_others_stand_below_with_their_printed_numbers_alone() -> None:
    found = made(others=True)
    below = found.rows[2:]
    assert [row.cell for row in below] == [
        row.name for row in printed("detreg/table1").rows if row.name not in ROWS.values()
    ]
    for row in below:
        value = row.measured[METRIC].printed
        assert row.printed_only and row.n == row.planned == 0 and not row.run_ids
        assert value is not None and value.row == row.cell
    text = markup.markdown(found)
    assert "| HDC 384 (published only) | – |  | 53.6 | – |" in text
    assert "Without a result" not in text, "nothing is missing"
    assert [v.cell for v in verdicts([found])] == ["DetReg"]
    assert csv_table.to_csv(found).count("HDC 384") == 2, "once as a cell and once as its label"


def test_patterns_choose_them() -> None:
    assert [row.cell for row in made(others=["MS *"]).rows[2:]] == ["MS 64", "MS 512"]
    assert len(made().rows) == 2
    with pytest.raises(ReportError, match="found row 'MX \\*'; known: Clustering 64"):
        made(others=["MX *"])


def test_a_measured_number_says_how_far_it_is_from_the_printed_one() -> None:
    text = markup.markdown(made(others=["MS 64"]))
    assert "Recall@1 − published" in text
    (row,) = [
        line for line in text.splitlines() if line.startswith("| DetReg |") and "−8.10" in line
    ]
    assert row.rstrip().endswith("|")


def test_protocols_that_differ_are_told() -> None:
    notes = " ".join(made().notes)
    assert "Measured numbers are validation-selected and published ones test-selected" in notes
