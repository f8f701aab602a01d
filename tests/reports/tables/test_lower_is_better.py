"""Of metrics that should fall the smallest is the best, and a smaller one the better."""

from __future__ import annotations

from typing import Any

import pytest

from reports.pages import markup
from reports.recipe import Table
from reports.tables.build import build
from reports.tables.model import TableData
from tests.reports.made import frame

VARIANTS = [{"variant": "plain"}, {"variant": "nir"}]


def value(coords: dict[str, Any], seed: int) -> float:
    return (0.2 if coords["variant"] == "plain" else 0.1) + 1e-3 * seed


@pytest.mark.parametrize(
    ("metric", "bold", "chance"),
    [
        ("test/spectrum", ["nir"], 1.0),
        ("test/uniformity", ["nir"], 1.0),
        ("test/density", [], 0.0),
        ("test/map_at_r", [], 0.0),
    ],
)
def test_bold_and_chance_of_improvement(metric: str, bold: list[str], chance: float) -> None:
    made = frame("compare", VARIANTS, value, names=["plain", "nir"], metric=metric, seeds=6)
    table = build(made, Table(kind="compare", study="s", metrics=(metric,), baseline="plain"))
    assert isinstance(table, TableData)
    assert [row.cell for row in table.rows if row.measured[metric].better] == bold
    compared = table.rows[1].measured[metric].compared
    assert compared is not None and compared.improvement is not None
    assert compared.improvement.probability == chance
    assert compared.difference is not None
    assert compared.difference.mean == pytest.approx(-0.1), "the difference keeps its sign"
    assert ("↓" in markup.markdown(table)) == (metric in ("test/spectrum", "test/uniformity"))
