"""The table of promoted cells: both fidelities side by side, and how far they agree."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from reports.errors import ReportError
from reports.pages import csv_table, html, latex, markup
from reports.pages.markup import Footnotes
from reports.recipe import Recipe, Table
from reports.stats.ranks import Correlation, spearman
from reports.tables.build import build, build_all
from reports.tables.model import Sheet
from tests.reports.made import METRIC
from tests.reports.made_promoted import HIGH, made

RECIPE = Table(kind="promoted", study="network")


def sheet(found: Any) -> Sheet:
    assert isinstance(found, Sheet)
    return found


def test_each_cell_stands_beside_what_it_was() -> None:
    table = sheet(build(made(), RECIPE))
    assert table.headers == (
        "rank",
        "heads cell",
        "optimizer.lr",
        "MAP@R, validation (%), heads",
        "MAP@R, validation (%), network",
        "n",
    )
    rows = [[field.text for field in row] for row in table.rows]
    assert [row[:3] for row in rows] == [
        ["1", "0001", "0.1"],
        ["2", "0003", "0.001"],
        ["3", "0002", "0.01"],
    ]
    half = 100 * scipy_stats.t.ppf(0.975, 2) * 0.01 / np.sqrt(3)
    assert rows[0][4] == f"60.00 [{60 - half:.2f}, {60 + half:.2f}]" and rows[0][5] == "3"
    assert rows[0][3].startswith("49.50 [")
    assert table.rows[0][3].of == ("heads", "0001") and table.rows[0][4].of == ("network", "rank=1")
    told = " ".join(table.notes)
    assert "The best 3 of 4 cells of heads" in told
    expected = scipy_stats.spearmanr([0.5, 0.45, 0.4], [0.6, 0.62, 0.7]).statistic
    assert expected == pytest.approx(-1) and "ρ = −1.00 over 3 promoted cells" in told
    for text in (markup.plain(table), markup.markdown(table), latex.latex(table)):
        assert "0003" in text and "Spearman" in text
    lines = list(csv.DictReader(io.StringIO(csv_table.to_csv(table))))
    assert [line["rank"] for line in lines] == ["1", "2", "3"]
    assert float(lines[1]["source_mean"]) == pytest.approx(0.445)
    assert float(lines[1]["mean"]) == pytest.approx(0.62) and lines[1]["n"] == "3"
    assert lines[0]["run_ids"].split() == [f"run-network0-{seed}" for seed in range(3)]
    assert html._table(table, Footnotes())["parts"][0]["rows"][0]["hrefs"][3:5] == [
        html.anchor("heads", "0001"),
        html.anchor("network", "rank=1"),
    ]


def test_one_seed_has_no_interval_and_what_is_lost_is_named() -> None:
    def lost(cell: int, seed: int) -> float | None:
        return None if cell == 3 else HIGH[cell]

    table = sheet(build(made(lost, seeds=1), RECIPE))
    assert [row[4].text for row in table.rows] == ["60.00", "missing", "70.00"]
    assert table.rows[1][5].text == "0 of 1"
    told = " ".join(table.notes)
    assert "none with fewer than 3 cells" in told and "rank=2, seed 0: failed (not finite)" in told


def test_a_neutral_cell_was_none_of_the_source() -> None:
    table = sheet(build(made(neutral={"best_of": "baseline"}), RECIPE))
    (row,) = (row for row in table.rows if row[0].text == "neutral")
    assert [field.text for field in row[1:4]] == ["", "", "–"]
    assert row[4].text.startswith("65.00 [")


def test_agreement_is_from_worst_to_best_of_both() -> None:
    """A source ranked by what should be small, and a metric that should be large."""
    frame = made()
    frame.document["studies"]["heads"]["objectives"] = [{"metric": METRIC, "direction": "minimize"}]
    assert "ρ = 1.00 over 3" in " ".join(build(frame, RECIPE).notes)


def test_no_table_of_effects_follows_and_other_designs_are_refused() -> None:
    compare = Table(kind="compare", study="network")
    assert len(build_all(made(), Recipe(tables=(RECIPE, compare)))) == 2
    assert build(made(), compare).rows[0].cell == "rank=1"  # type: ignore[union-attr]
    with pytest.raises(ReportError, match="a promote study"):
        build(made(), Table(kind="promoted", study="heads"))


def test_spearman_is_the_correlation_of_ranks() -> None:
    rng = np.random.default_rng(0)
    for n in (3, 8, 30):
        a, b = rng.normal(size=n), rng.integers(0, 4, size=n).astype(float)
        x, y = scipy_stats.rankdata(a), scipy_stats.rankdata(b)
        found = spearman(a.tolist(), b.tolist())
        if np.ptp(b) == 0:
            continue
        assert found is not None and found.n == n
        assert found.value == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert spearman([1, 2], [1, 2]) is None
    assert spearman([1, 2, 3], [1, 1, 1]) is None
    assert spearman([1, 2, 3, float("nan")], [1, 2, 4, 9]) == Correlation(1.0, 3)
    with pytest.raises(ValueError, match="pairs"):
        spearman([1], [1, 2])
