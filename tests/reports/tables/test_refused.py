"""Baselines at the same level of a factor, and rows of what no trial could be."""

from __future__ import annotations

from typing import Any

from reports.pages import markup
from reports.recipe import Table
from reports.tables.build import build
from reports.tables.model import TableData
from tests.reports.made import METRIC, frame

CROSS = [
    {"loss": loss, "method": method}
    for loss, method in (("pa", "plain"), ("pa", "nir"), ("ms", "plain"), ("ms", "ddml"))
]
WHY = "a loss with proxies or centres for method nir, not this loss"
REFUSED = {"cell": "loss=ms,method=nir", "coords": {"loss": "ms", "method": "nir"}, "reason": WHY}


def value(coords: dict[str, Any], seed: int) -> float:
    return {"pa": 0.5, "ms": 0.3}[coords["loss"]] + (coords["method"] != "plain") * 0.1 + seed / 100


def table(refused: list[dict[str, Any]], **recipe: Any) -> TableData:
    made = frame(
        "compare",
        CROSS,
        value,
        tuning={",".join(f"{k}={v}" for k, v in c.items()): 4 for c in CROSS},
    )
    made.document["spec"]["refused"] = {"s": refused}
    found = build(made, Table(kind="compare", study="s", metrics=(METRIC,), **recipe))
    assert isinstance(found, TableData)
    return found


def test_each_row_is_set_against_the_baseline_at_its_own_level() -> None:
    found = table([], within=["loss"])
    assert [row.cell for row in found.rows if row.baseline] == [
        "loss=pa,method=plain",
        "loss=ms,method=plain",
    ]
    differences = {row.cell: row.measured[METRIC].difference for row in found.rows}
    for cell in ("loss=pa,method=nir", "loss=ms,method=ddml"):
        difference = differences[cell]
        assert difference is not None and round(difference.mean, 9) == 0.1
    text = markup.markdown(found)
    assert "Differences are taken at the same loss." in text and "2 comparison(s)" in text


def test_without_it_all_are_set_against_one() -> None:
    assert [row.cell for row in table([]).rows if row.baseline] == ["loss=pa,method=plain"]


def test_a_refused_combination_is_a_row_without_numbers_and_a_reason() -> None:
    found = table([REFUSED], within=["loss"])
    row = found.rows[-1]
    assert row.labels == ("ms", "nir") and row.n == row.planned == 0
    text = markup.markdown(found)
    assert f"Refused: loss=ms,method=nir: expected {WHY}." in text
    assert "Tuning: 4 trials planned for each row, an equal budget." in text
    first, further = (line for line in text.splitlines() if line.startswith("| ms | nir |"))
    assert first.startswith("| ms | nir | refused |") and first.rstrip("| ").endswith("–")
    assert not any(letter.isdigit() for letter in further)
