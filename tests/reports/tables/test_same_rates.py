"""The column of the differences at the same rates: what it shows, and what it leaves alone."""

from __future__ import annotations

import csv
import io
from statistics import fmean

import pytest

from reports.frame import Frame
from reports.pages.markup import build_grid
from reports.pages.table_files import to_csv
from reports.recipe import Table
from reports.stats.paired import paired_difference
from reports.tables.build import build_table
from reports.tables.model import TableData
from reports.tables.verdict import judge_tables
from tests.reports.made import METRIC, Row, assemble

SEEDS = range(6)
NOISE = (0.001, -0.001, 0.002, 0.0, -0.002, 0.0005)
OTHER = "b, not neutral"
# cell → its mean, the mean of the plain loss at its settings, and the trial that the latter is
CELLS = {
    "plain": (0.50, 0.50, "plain"),
    "a": (0.53, 0.525, "a, plain"),
    "b": (0.50, 0.50, "plain"),
    OTHER: (0.47, 0.46, "b, plain"),
}


def build_frame(*, twins: bool = True, failed: int | None = None, repeated: bool = False) -> Frame:
    """A comparison, and its rows with the plain loss. failed: the seed at which a's fails.

    repeated: the second row of b has the same plain loss as the first one.
    """
    rows, cells = list[Row](), dict(CELLS)
    if repeated:
        cells[OTHER] = (0.47, 0.50, "plain")
    for idx, (cell, (mean, plain, twin)) in enumerate(cells.items()):
        for seed in SEEDS:
            noise = 0.01 * seed + NOISE[(seed + idx) % 6]
            rows.append(
                Row("s", cell, {"variant": cell}, idx, seed, mean + noise, f"{cell}-{seed}")
            )
            value = None if (cell, seed) == ("a", failed) else plain + 0.01 * seed
            value = 0.50 + 0.01 * seed + NOISE[seed] if twin == "plain" else value
            coords = {"variant": cell, "same_rates": "plain"}
            name = f"variant={cell.removesuffix(', not neutral')},same_rates=plain"
            name += ", not neutral" if cell == OTHER else ""
            rows.append(Row("s_same_rates", name, coords, idx, seed, value, f"{twin}-{seed}"))
    studies = {"s": {"design": "compare"}, "s_same_rates": {"design": "compare"}}
    if twins:
        return assemble(rows, studies, same_rates={"s": "s_same_rates"})
    return assemble([row for row in rows if row.study == "s"], {"s": studies["s"]})


def build(frame: Frame) -> TableData:
    table = build_table(frame, Table(kind="compare", study="s", metrics=(METRIC,)))
    assert isinstance(table, TableData)
    return table


def test_each_row_is_compared_with_the_plain_loss_at_its_settings() -> None:
    table = build(build_frame())
    shown = {row.cell: row.measured[METRIC].same_rates for row in table.rows}
    assert shown["plain"] is None
    for cell, mean in (("a", 0.005), (OTHER, 0.01)):
        idx = [*CELLS].index(cell)
        own = {seed: CELLS[cell][0] + NOISE[(seed + idx) % 6] for seed in SEEDS}
        expected = paired_difference(own, dict.fromkeys(SEEDS, CELLS[cell][1]))
        assert expected is not None and shown[cell] is not None
        assert shown[cell].mean == pytest.approx(expected.mean) == pytest.approx(mean, abs=1e-3)
        assert shown[cell].low == pytest.approx(expected.low) and shown[cell].n == 6
    grid = build_grid(table)
    column = grid.headers.index("Δ MAP@R at the same rates [95 %]")
    assert not grid.further[column]
    texts = [row[column].text for row in grid.rows]
    assert texts[0] == "" and all("[" in text for text in texts[1:])
    lines = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert lines[1]["delta_same_rates"] == str(shown["a"].mean) and not lines[0]["delta_same_rates"]
    assert any(note.startswith("Δ at the same rates") for note in table.notes)


def test_verdicts_intervals_and_the_family_stay_as_they_are() -> None:
    frames = build_frame(), build_frame(twins=False)
    shown, without = map(build, frames)
    assert judge_tables(frames[0], [shown]) == judge_tables(frames[1], [without])
    for row, other in zip(shown.rows, without.rows, strict=True):
        assert row.measured[METRIC].compared == other.measured[METRIC].compared
        assert other.measured[METRIC].same_rates is None
    assert not any("same rates" in header for header in build_grid(without).headers)
    assert not any(note.startswith("Δ at the same rates") for note in without.notes)


def test_seeds_without_a_result_are_left_out_of_the_pairs() -> None:
    table = build(build_frame(failed=2))
    gap = table.rows[1].measured[METRIC].same_rates
    values = [0.53 + NOISE[(seed + 1) % 6] - 0.525 for seed in SEEDS if seed != 2]
    assert gap is not None and gap.n == 5 and gap.mean == pytest.approx(fmean(values))
    assert judge_tables(build_frame(failed=2), [table])[0].call == "better"


def test_a_second_row_whose_plain_loss_repeats_the_first_one_has_it_too() -> None:
    other = build(build_frame(repeated=True)).rows[3]
    gap = other.measured[METRIC].same_rates
    assert other.cell == OTHER and gap is not None
    assert gap.mean == pytest.approx(-0.03) and gap.n == 6
