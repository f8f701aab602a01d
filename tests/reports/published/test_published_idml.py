"""IDML's printed tables; the numbers here were typed again from the paper's pages."""

from __future__ import annotations

import pytest

from reports.published.papers import paper, table

TYPED_AGAIN = [
    ("table1", "SoftTriple", "CUB/R@1", 65.4),
    ("table1", "DIML", "SOP/M@R", 43.2),
    ("table1", "P-NCA++", "CAR/NMI", 73.8),
    ("table1", "Triplet-SH*", "CAR/M@R", 21.1),
    ("table1", "IDML-TSH", "SOP/R@10", 89.4),
    ("table1", "ProxyNCA*", "CUB/RP", 35.5),
    ("table1", "IDML-FAP", "CAR/NMI", 71.9),
    ("table1", "IDML-Con", "CUB/M@R", 25.7),
    ("table1", "IDML-MDW", "CAR/RP", 0.39),
    ("table1", "IDML-MDW", "CAR/M@R", 2.29),
    ("table1", "IDML-MS", "SOP/RP", 53.7),
    ("table1", "ProxyAnchor*", "CAR/R@1", 87.3),
    ("table1", "IDML-PA", "CAR/R@1", 90.6),
    ("table1", "IDML-PA", "SOP/M@R", 51.3),
    ("table2", "Baseline", "ImageNet-1K/Top-1", 76.32),
    ("table2", "ISM-Baseline", "CIFAR-100/Top-5 gain", 0.17),
    ("table2", "IDML-Cutmix", "ImageNet-1K/Top-1", 79.04),
    ("table2", "IDML-Mixup", "CIFAR-100/Top-5", 96.79),
    ("table3", "Margin-DW", "CUB/R@1", 65.9),
    ("table3", "PEL-Mixup-MDW", "CAR/RP", 35.9),
    ("table3", "IDML-MDW", "CAR/NMI", 73.0),
    ("table3", "ISM-PA", "CAR/R@1", 88.8),
    ("table3", "PEL-PA", "SOP/M@R", 48.7),
    ("table4", "40", "CUB/R@1", 66.3),
    ("table4", "180", "CAR/NMI", 77.5),
    ("table5", "32", "CUB/R@1", 56.9),
    ("table5", "1024", "CAR/M@R", 33.7),
    ("table6", "32", "CAR/NMI", 75.9),
    ("table6", "1024", "CUB/NMI", 73.4),
    ("table7", "ISM-Dis (20)", "CUB/NMI", 72.0),
    ("table7", "ISM-Sim (19)", "CAR/M@R", 33.8),
    ("table8", "ISM (IDML)", "CAR/R@2", 93.9),
    ("table8", "Euclidean (IDML)", "CUB/R@1", 70.7),
    ("table9", "DeiT-S-IDML", "Top-1", 80.5),
    ("table9", "DeiT-Ti", "Top-1", 72.2),
    ("table10", "Timm-A1", "Top-1", 80.4),
    ("table10", "Ours", "Top-1", 79.0),
]


@pytest.mark.parametrize(("name", "row", "column", "value"), TYPED_AGAIN)
def test_value_is_the_printed_one(name: str, row: str, column: str, value: float) -> None:
    found = table(f"idml/{name}")
    printed = found.value(found.row(row), column)
    assert printed is not None
    assert printed.value == value


def test_no_row_is_missing() -> None:
    rows = {name: len(found.rows) for name, found in paper("idml").tables.items()}
    assert rows == {
        "table1": 32,
        "table2": 6,
        "table3": 12,
        "table4": 8,
        "table5": 6,
        "table6": 6,
        "table7": 3,
        "table8": 3,
        "table9": 4,
        "table10": 9,
    }
    assert all(table(f"idml/{name}").protocol == "test-selected" for name in rows)


def test_the_two_tables_contradict_each_other_and_both_are_marked() -> None:
    one, three = table("idml/table1"), table("idml/table3")
    for column in ("CAR/NMI", "CAR/RP", "CAR/M@R"):
        for found in (one, three):
            printed = found.value(found.row("IDML-MDW"), column)
            assert printed is not None
            assert printed.slip is not None, (found.source, column)
    for column in ("CUB/R@1", "CAR/R@1", "SOP/R@1", "CUB/NMI", "SOP/RP"):
        values = [found.value(found.row("IDML-MDW"), column) for found in (one, three)]
        assert values[0] is not None
        assert values[1] is not None
        assert values[0].value == values[1].value


def test_gains_are_those_of_the_rows_but_for_the_marked_one() -> None:
    found = table("idml/table2")
    for above, below in zip(found.rows[::2], found.rows[1::2], strict=True):
        for column in found.columns[:5]:
            values = [found.value(row, column) for row in (above, below)]
            gain = found.value(below, f"{column} gain")
            assert values[0] is not None
            assert values[1] is not None
            assert gain is not None
            right = abs(values[1].value - values[0].value - gain.value) < 1e-6
            assert right == (gain.slip is None), (below.name, column)
