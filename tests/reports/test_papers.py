"""The numbers here were typed again from the papers' pages, not copied from the data files."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.pages.markup import format_printed
from reports.papers import PrintedValue, load_paper, load_published_table
from reports.tables.model import MeasuredMetric

ROWS = {  # of each paper's tables
    "detreg": (16, 15, 10),
    "dvml": (11, 11, 11, 6),
    "idml": (32, 6, 12, 8, 6, 6, 3, 3, 4, 9),
    "nir": (7, 18, 2, 14, 4),
    "ddml": (6, 32, 8, 8),
}


def printed(reference: str, row: str, column: str) -> PrintedValue:
    found = load_published_table(reference).get_printed_value(
        load_published_table(reference).get_row(row), column
    )
    assert found is not None, (reference, row, column)
    return found


def test_values_are_the_printed_ones() -> None:
    """typed_again.tsv: an empty deviation was not typed again, `none` is printed without one."""
    lines = (Path(__file__).parent / "typed_again.tsv").read_text("utf-8").splitlines()[1:]
    assert len(lines) > 120
    for reference, row, column, value, sd in (line.split("\t") for line in lines):
        number = printed(reference, row, column)
        assert number.value == float(value), (reference, row, column)
        expected = None if sd == "none" else float(sd or number.sd or 0)
        assert not sd or number.sd == expected, (reference, row, column)


@pytest.mark.parametrize("name", ROWS)
def test_no_row_is_missing_and_all_are_test_selected(name: str) -> None:
    tables = load_paper(name).tables
    assert list(tables) == [f"table{i + 1}" for i in range(len(ROWS[name]))]
    assert tuple(len(each.rows) for each in tables.values()) == ROWS[name]
    assert {load_published_table(f"{name}/{each}").protocol for each in tables} == {"test-selected"}
    for each in tables.values():
        names = [row.name for row in each.rows]
        assert len(set(names)) == len(names)
        for row in each.rows:
            assert len(row.values) == len(row.sd or row.values) == len(each.columns), row.name
            assert all(row.values[each.columns.index(at)] is None for at in row.unread), row.name
        for slip in each.slips:
            assert slip.row in names and slip.column in ("", *each.columns), slip


def test_components_are_found_by_coordinates() -> None:
    found = load_published_table("ddml/table4")
    row = found.find_row_at({"agnostic": "on", "specific": "off", "split": "on"})
    assert row is not None and row.values == (64.7, 83.4, 78.0)
    assert found.find_row_at({"agnostic": "on"}) is None
    assert len({str(sorted(row.coords.items())) for row in found.rows}) == 8


# table, row, column and printed value of what contradicts itself or another place
SLIPS = [
    ("ddml/table1", "DDML(+PA)", "SOP/R@100", 98.80),
    ("ddml/table1", "PA", "SOP/R@1", 78.84),
    ("ddml/table2", "BN-Inception: ProxyAnchor", "SOP/R@1", 80.3),
    ("ddml/table3", "BN-Inception: ProxyAnchor", "SOP/R@1", 79.1),
    ("detreg/table1", "MS 64", "CAR/R@8", 90.2),
    ("dvml/table2", "Triplet2+DWS", "NMI", 89.0),
    ("dvml/table2", "Triplet2+DWS", "F1", 31.1),
    *((f"idml/table{n}", "IDML-MDW", f"CAR/{m}", None) for n in (1, 3) for m in ("NMI", "RP")),
    *((f"idml/table{n}", "IDML-MDW", "CAR/M@R", None) for n in (1, 3)),
    ("nir/table1", "ProxyAnchor + NIR", "CAR/R@1", 85.2),
    ("nir/table4", "PA + NIR", "CAR/R@1", 85.2),
]


def test_slips_are_marked_and_stand_as_printed() -> None:
    for reference, row, column, value in SLIPS:
        number = printed(reference, row, column)
        assert number.slip is not None, (reference, row, column)
        assert value in (None, number.value)
    assert printed("ddml/table1", "DDML(+PA)", "SOP/R@10").slip is None


def test_numbers_have_the_unit_and_the_digits_of_the_print() -> None:
    def shown(reference: str, row: str, column: str) -> str:
        return format_printed(MeasuredMetric(None, printed=printed(reference, row, column)))

    p_value = printed("dvml/table4", "test: Triplet p-value", "SOP")
    assert (p_value.value, p_value.sd) == (83.75, 8.12)
    assert shown("nir/table3", "PA", "CUB/G_2") == "0.078 ± 0.001"
    assert shown("nir/table3", "PA", "CUB/rho") == "0.19 ± 0.01"
    assert shown("nir/table1", "ProxyAnchor + NIR", "CUB/R@1") == "66.0 ± 0.3"
    assert shown("nir/table1", "ProxyAnchor + NIR", "CAR/R@1") == "85.2 ± 0.3*"
    assert shown("ddml/table1", "NS", "CUB/R@1") == "64.65 ± 0.09"
