"""Promoted cells: both fidelities side by side, their ranks, and how far they agree."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from reports.figures.ranks import promotions
from reports.pages import html, table_files
from reports.recipe import Figure, Table
from reports.stats.describe import spearman
from reports.tables.build import build_table
from reports.tables.model import Sheet
from tests.reports.made import METRIC
from tests.reports.made_promoted import HIGH, LOW, made
from trainables.words.errors import ReportError

TABLE = Table(kind="promoted", study="network")
FIGURE = Figure(kind="promotions", studies=("network",), metric=METRIC)
MINIMIZE = [{"metric": METRIC, "direction": "minimize"}]
NEUTRAL = {"best_of": "baseline"}


def sheet(found: Any) -> Sheet:
    table = build_table(found, TABLE)
    assert isinstance(table, Sheet)
    return table


def lost(cell: int, seed: int) -> float | None:
    return None if cell == 3 else HIGH[cell]


def test_each_cell_stands_beside_what_it_was() -> None:
    table = sheet(made())
    labels = ("MAP@R, validation (%), heads", "MAP@R, validation (%), network")
    assert table.headers == ("rank", "heads cell", "optimizer.lr", *labels, "n")
    rows = [[field.text for field in row] for row in table.rows]
    settings = [["1", "0001", "0.1"], ["2", "0003", "0.001"], ["3", "0002", "0.01"]]
    assert [row[:3] for row in rows] == settings
    half = 100 * scipy_stats.t.ppf(0.975, 2) * 0.01 / np.sqrt(3)
    assert rows[0][4] == f"60.00 [{60 - half:.2f}, {60 + half:.2f}]" and rows[0][5] == "3"
    assert rows[0][3].startswith("49.50 [")
    assert table.rows[0][3].of == ("heads", "0001") and table.rows[0][4].of == ("network", "rank=1")
    assert "ρ = −1.00 over 3 promoted cells" in " ".join(table.notes)
    lines = list(csv.DictReader(io.StringIO(table_files.to_csv(table))))
    assert [line["rank"] for line in lines] == ["1", "2", "3"]
    assert float(lines[1]["source_mean"]) == pytest.approx(0.445)
    assert float(lines[1]["mean"]) == pytest.approx(0.62) and lines[1]["n"] == "3"
    assert lines[0]["run_ids"].split() == [f"run-network0-{seed}" for seed in range(3)]
    hrefs = html._build_table_parts(table)[0]["rows"][0]["hrefs"]
    assert hrefs[3:5] == [
        html.build_run_anchor("heads", "0001"),
        html.build_run_anchor("network", "rank=1"),
    ]


def test_one_seed_has_no_interval_and_what_is_lost_is_named() -> None:
    table = sheet(made(lost, seeds=1))
    assert [row[4].text for row in table.rows] == ["60.00", "missing", "70.00"]
    assert table.rows[1][5].text == "0 of 1"
    notes = " ".join(table.notes)
    assert (
        "none with fewer than 3 cells" in notes and "rank=2, seed 0: failed (not finite)" in notes
    )
    assert not promotions(made(lambda i, seed: None), FIGURE).figure.axes[0].lines


def test_a_line_a_cell_joins_its_ranks_among_the_promoted_ones() -> None:
    drawn = promotions(made(neutral=NEUTRAL), FIGURE)
    panel = drawn.figure.axes[0]
    ends = sorted(tuple(line.get_ydata()) for line in panel.lines)
    assert ends == [(1, 3), (2, 2), (3, 1)]  # the neutral cell comes of none
    assert panel.get_title(loc="left") == "heads → network\nρ = −1.00, 3 cells"
    words = []
    for cell, (rank, became) in {1: (1, 3), 3: (2, 2), 2: (3, 1)}.items():
        before, after = 100 * (LOW[cell] - 0.005), 100 * HIGH[cell]  # of the seeds 0 and 1; of all
        words.append(f"{cell:04d}: rank {rank} ({before:.2f}) → rank {became} ({after:.2f})")
    assert [spot.text for spot in drawn.spots] == [text for text in words for _ in range(2)]


def test_agreement_is_from_worst_to_best_of_both() -> None:
    """A source ranked by what should be small, and a metric that should be large."""
    frame = made()
    frame.document["studies"]["heads"]["objectives"] = MINIMIZE
    assert "ρ = 1.00 over 3" in " ".join(build_table(frame, TABLE).notes)
    drawn = promotions(frame, FIGURE)
    assert "ρ = 1.00" in drawn.figure.axes[0].get_title(loc="left")
    assert drawn.spots[0].text.startswith("0001: rank 3")
    frame.document["studies"]["network"]["objectives"] = MINIMIZE
    assert "ρ = −1.00 over 3" in " ".join(build_table(frame, TABLE).notes)


def test_other_designs_are_refused() -> None:
    with pytest.raises(ReportError, match="a promote study"):
        build_table(made(), Table(kind="promoted", study="heads"))
    with pytest.raises(ReportError, match="heads is a search study"):
        promotions(made(), FIGURE.model_copy(update={"studies": ("heads",)}))


def test_correlations_are_of_ranks() -> None:
    rng = np.random.default_rng(0)
    for n in (3, 8, 30):
        a, b = rng.normal(size=n), rng.integers(0, 4, size=n).astype(float)
        x, y = scipy_stats.rankdata(a), scipy_stats.rankdata(b)
        if np.ptp(b) > 0:
            expected = pytest.approx(np.corrcoef(x, y)[0, 1])
            assert spearman(a.tolist(), b.tolist()) == expected
    assert spearman([1, 2], [1, 2]) is None
    assert spearman([1, 2, 3], [1, 1, 1]) is None
