"""The numbers here were typed again from the paper's pages, not copied from the data file."""

from __future__ import annotations

import pytest

from reports.published.papers import paper, table

TYPED_AGAIN = [
    ("table1", "Clustering 64", "CUB/R@1", 48.2),
    ("table1", "Smart Mining 64", "CAR/R@4", 84.2),
    ("table1", "MS 64", "CAR/R@8", 90.2),
    ("table1", "MS 512", "CUB/R@4", 86.3),
    ("table1", "Margin 128", "CUB/R@8", 90.0),
    ("table1", "ABE 512", "CAR/R@1", 85.2),
    ("table1", "Proxy-Anchor 512", "CUB/R@1", 68.4),
    ("table1", "Ours 512", "CUB/R@1", 69.1),
    ("table1", "Ours 512", "CAR/R@8", 97.4),
    ("table2", "Margin 128", "R@100", 93.8),
    ("table2", "Proxy-Anchor 512", "R@1", 79.1),
    ("table2", "Ours 512", "R@1", 79.0),
    ("table3", "FashionNet 4096", "R@1000", 79.0),
    ("table3", "MS 512", "R@10", 97.9),
    ("table3", "Ours 512", "R@100", 98.7),
]


@pytest.mark.parametrize(("name", "row", "column", "value"), TYPED_AGAIN)
def test_value_is_the_printed_one(name: str, row: str, column: str, value: float) -> None:
    found = table(f"detreg/{name}")
    printed = found.value(found.row(row), column)
    assert printed is not None
    assert printed.value == value


def test_no_row_is_missing_and_all_are_test_selected() -> None:
    tables = paper("detreg").tables
    assert {name: len(tables[name].rows) for name in tables} == {
        "table1": 16,
        "table2": 15,
        "table3": 10,
    }
    assert {table(f"detreg/{name}").protocol for name in tables} == {"test-selected"}


def test_dashes_and_the_recall_that_falls() -> None:
    two = table("detreg/table2")
    row = two.row("Proxy-NCA 64")
    assert [two.value(row, column) is None for column in two.columns] == [False, True, True, True]
    falling = []
    for name in ("table1", "table2", "table3"):
        found = table(f"detreg/{name}")
        for row in found.rows:
            for start in range(0, len(found.columns), 4):
                values = [v for v in row.values[start : start + 4] if v is not None]
                falling += [row.name] if values != sorted(values) else []
    assert falling == ["MS 64"]
    one = table("detreg/table1")
    marked = one.value(one.row("MS 64"), "CAR/R@8")
    assert marked is not None
    assert marked.slip is not None
