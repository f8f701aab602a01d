"""Terms' shares beside rows, and what verdicts say of rows whose terms are inactive."""

from __future__ import annotations

from typing import Any

import pytest

from reports.pages.markup import build_grid, format_markdown_table
from reports.pages.verdict_text import format_evidence
from reports.recipe import Table
from reports.tables.build import build_table
from reports.tables.labels import format_ratio
from reports.tables.model import TableData
from reports.tables.term_shares import TermShare, judge_terms_of_row
from reports.tables.verdict import judge_tables
from tests.reports import made


def list_ratios(term: str, first: float | None, last: float) -> dict[str, float]:
    name = f"observed/{term}_to_metric"
    firsts = {} if first is None else {f"{name}/first": first}
    return {name: last, f"{name}/max": last, **firsts}


def compare(ratios: dict[str, dict[str, float]]) -> tuple[TableData, dict[str, Any]]:
    """The table of rows `plain` and `ours`, each with its ratios, and the verdicts by row."""
    levels = [{"variant": "plain"}, {"variant": "ours"}]
    frame = made.frame("compare", levels, lambda at, seed: 0.5 + 0.1 * seed, seeds=2)
    names = [row["ablate.cells"] for row in frame.trials["tags"]]
    frame.trials["ratios"] = [ratios["ours" if "ours" in name else "plain"] for name in names]
    table = Table(kind="compare", study="s", metrics=("val/map_at_r",))
    compared = build_table(frame, table)
    assert isinstance(compared, TableData)
    return compared, {verdict.label: verdict for verdict in judge_tables(frame, [compared])}


def test_a_column_shows_the_first_and_the_last_ratio_of_each_term() -> None:
    ours = list_ratios("kl", 12_345.0, 300.0) | list_ratios("split", None, 2e-6)
    table, _ = compare({"plain": {}, "ours": ours})
    grid = build_grid(table)
    position = grid.headers.index("terms' share")
    assert grid.further[position], "the second table, which is folded in HTML"
    assert [row[position].text for row in grid.rows] == ["", "kl 12,000 → 300, split 2e-6"]
    assert "terms' share" in format_markdown_table(table)
    table, _ = compare({"plain": {}, "ours": {}})
    assert "terms' share" not in build_grid(table).headers
    assert not any("Terms' share" in note for note in table.notes)


def test_a_verdict_says_that_a_rows_own_terms_are_inactive() -> None:
    shared = list_ratios("norm", 0.1, 0.1)
    ours = shared | list_ratios("r1", 2e-6, 1e-6) | list_ratios("metric2", 1.0, 1.0)
    _, verdicts = compare({"plain": shared, "ours": ours})
    expected = (
        "its terms are inactive (2e-6 of the metric's gradient): this row tests the rest of the "
        "method"
    )
    assert expected in format_evidence(verdicts["ours"])
    _, verdicts = compare({"plain": shared, "ours": ours | list_ratios("r2", 1e-3, 1e-6)})
    assert "inactive" not in format_evidence(verdicts["ours"]), "r2 acted at first"


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ({}, ""),
        ({"kl": TermShare(0.5, 1e-9)}, ""),
        ({"kl": TermShare(1e-5, 0.5)}, ""),
        (
            {"kl": TermShare(12_000, 0.1), "generated": TermShare(0.2, 0.2)},
            "its term kl drowns the metric (12,000 times its gradient at first)",
        ),
    ],
)
def test_what_is_said_of_the_terms_of_a_row(shares: dict[str, TermShare], text: str) -> None:
    assert judge_terms_of_row(shares, {}) == text
    assert judge_terms_of_row(shares, shares) == "", "the baseline has the same terms"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0, "0"), (2e-6, "2e-6"), (1.06e-8, "1.1e-8"), (0.35, "0.35"), (8, "8"), (12_345, "12,000")],
)
def test_a_ratio_has_two_digits(ratio: float, text: str) -> None:
    assert format_ratio(ratio) == text
