"""The numbers here were typed again from the paper's pages, not copied from the data file."""

from __future__ import annotations

import pytest

from reports.published.papers import paper, table

TYPED_AGAIN = [
    ("table1", "Triplet", "R@1", 58.5),
    ("table1", "DVML+Triplet", "R@8", 85.1),
    ("table1", "DVML+N-pair", "R@1", 80.4),
    ("table1", "Contrastive", "NMI", 44.8),
    ("table1", "DVML+Triplet2+DWS", "F1", 36.8),
    ("table1", "HDC", "R@1", 73.7),
    ("table2", "N-pair", "R@10", 82.9),
    ("table2", "DVML+Triplet2+DWS", "R@100", 93.8),
    ("table2", "Proxy-NCA", "R@1", 73.7),
    ("table3", "Triplet2+DWS", "R@1", 49.8),
    ("table3", "DVML+Triplet2+DWS", "R@1", 52.7),
    ("table3", "Contrastive", "NMI", 43.8),
    ("table3", "Proxy-NCA", "R@8", 72.4),
    ("table4", "train: DVML+Triplet deviation", "Cars", 40.75),
    ("table4", "test: Triplet deviation", "CUB", 105.80),
]


@pytest.mark.parametrize(("name", "row", "column", "value"), TYPED_AGAIN)
def test_value_is_the_printed_one(name: str, row: str, column: str, value: float) -> None:
    found = table(f"dvml/{name}")
    printed = found.value(found.row(row), column)
    assert printed is not None
    assert printed.value == value


def test_no_row_is_missing_and_all_are_test_selected() -> None:
    tables = paper("dvml").tables
    assert {name: len(tables[name].rows) for name in tables} == {
        "table1": 11,
        "table2": 11,
        "table3": 11,
        "table4": 6,
    }
    assert {table(f"dvml/{name}").protocol for name in tables} == {"test-selected"}


def test_dashes_spread_and_slips() -> None:
    one, two, four = (table(f"dvml/table{n}") for n in (1, 2, 4))
    assert one.value(one.row("HDC"), "NMI") is None
    assert one.value(one.row("Proxy-NCA"), "F1") is None
    p = four.value(four.row("test: Triplet p-value"), "SOP")
    assert p is not None
    assert (p.value, p.sd) == (83.75, 8.12)
    for column, number in (("NMI", 89.0), ("F1", 31.1)):
        doubtful = two.value(two.row("Triplet2+DWS"), column)
        assert doubtful is not None
        assert doubtful.value == number
        assert doubtful.slip is not None
        same = two.value(two.row("DVML+Triplet"), column)
        assert same is not None
        assert same.value == number
