"""A comparison as a matrix: one cell for each method and backbone, all of one family."""

from __future__ import annotations

import csv
import itertools
import random
from typing import Any

import pytest
from pydantic import ValidationError

from reports.pages import markup, table_files
from reports.recipe import Recipe, Table
from reports.stats.blocks import compute_family_quantile, dunnett_quantile
from reports.tables.build import build_all
from reports.tables.model import Sheet, TableData
from reports.tables.verdict import judge_tables
from tests.reports.made import METRIC, frame

BACKBONES, METHODS = ("dino", "clip", "lite0"), ("plain", "ddml", "nir")
CROSS = [{"backbone": b, "method": m} for b, m in itertools.product(BACKBONES, METHODS)]
GAINS = {("dino", "ddml"): 0.05, ("clip", "nir"): -0.05}


def value(at: dict[str, Any], seed: int) -> float | None:
    if (at["backbone"], at["method"]) == ("lite0", "nir"):
        return None
    level = 0.3 + 0.1 * BACKBONES.index(at["backbone"])
    noise = random.Random(f"{at}{seed}").gauss(0, 0.001)
    return level + GAINS.get((at["backbone"], at["method"]), 0) + noise


def build(matrix: str | None) -> list[Any]:
    made = frame("compare", CROSS, value, seeds=5)
    table = Table(
        kind="compare", study="s", metrics=(METRIC,), title="All",
        baseline={"method": "plain"}, within=("backbone",), matrix=matrix, alone=True,
    )  # fmt: skip
    return [made, *build_all(made, Recipe(tables=(table,)))]


def test_a_matrix_has_methods_as_rows_and_backbones_as_columns() -> None:
    made, matrix, table = build("backbone")
    assert isinstance(matrix, Sheet) and isinstance(table, TableData)
    assert matrix.headers == ("method", *BACKBONES)
    cells = {row[0].text: [field.text for field in row[1:]] for row in matrix.rows}
    assert [*cells] == [*METHODS]
    assert float(cells["plain"][0]) == pytest.approx(30, abs=0.2)
    assert cells["ddml"][0].startswith("+5.") and cells["ddml"][0].endswith("] better")
    assert cells["nir"][1].endswith("] worse") and cells["nir"][2] == "missing"
    bold = [field for row in matrix.rows for field in row if field.bold]
    assert [field.of for field in bold] == [("s", "backbone=dino,method=ddml")]
    # every verdict is that of the table, and every format has the matrix
    verdicts = {v.cell: v for v in judge_tables(made, [table])}
    rows = list(csv.DictReader(table_files.to_csv(matrix).splitlines()))
    assert len(rows) == len(CROSS)
    for row in rows:
        verdict = verdicts.get(f"backbone={row['backbone']},method={row['method']}")
        assert row["verdict"] == (verdict.call if verdict else "")
    assert "| method | dino | clip | lite0 |" in markup.format_markdown_table(matrix)
    assert r"\bottomrule" in table_files.format_latex(matrix)


def test_all_cells_of_a_matrix_are_one_family() -> None:
    families, widths = [], []
    for matrix in ("backbone", None):
        made, *_, table = build(matrix)
        verdicts = judge_tables(made, [table])
        families.append({v.family for v in verdicts if v.call != "no result"})
        gaps = [v.difference for v in verdicts if v.difference]
        ends = [(g.low, g.high) for g in gaps if g.low is not None and g.high is not None]
        widths.append([high - low for low, high in ends])
    assert families == [{5}, {2, 1}]
    assert all(one >= other for one, other in zip(*widths, strict=True)) and widths[0] > widths[1]
    assert compute_family_quantile(2, 8, 0) == dunnett_quantile(2, 8)
    assert compute_family_quantile(2, 8, 3) > dunnett_quantile(5, 8)


def test_a_matrix_needs_its_factor_in_within() -> None:
    with pytest.raises(ValidationError, match="Add the factor to `within`"):
        Table(kind="compare", study="s", matrix="backbone")
