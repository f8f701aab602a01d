"""A table as CSV: every number, unrounded, one line per row and metric."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from reports.pages.csv_cells import guarded
from reports.tables.model import AnyTable, Measured, Sheet, TableRow

CSV_HEADERS = (
    "metric",
    "mean",
    "sd",
    "n",
    "planned",
    "delta",
    "delta_low",
    "delta_high",
    "delta_n",
    "delta_method",
    "p",
    "p_holm",
    "p_wilcoxon",
    "p_wilcoxon_holm",
    "cohens_dz",
    "cliffs_delta",
    "p_better",
    "p_better_low",
    "p_better_high",
    "half_95",
    "tuning_trials",
    "published",
    "published_sd",
    "published_unit",
    "published_slip",
    "run_ids",
    "gaps",
)


def to_csv(table: AnyTable) -> str:
    """Long form, unrounded: one line per row and metric; measured values on [0, 1]."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([guarded(value) for value in row] for row in _csv_rows(table))
    return out.getvalue()


def _csv_rows(table: AnyTable) -> Iterator[Sequence[object]]:
    if isinstance(table, Sheet):
        yield table.columns
        yield from table.numbers
        return
    yield ["cell", *table.headers, *CSV_HEADERS]
    for row in table.rows:
        for metric, measured in row.measured.items():
            yield [row.cell, *row.labels, metric, *_numbers(row, measured)]


def _numbers(row: TableRow, measured: Measured) -> list[object]:
    """As `CSV_HEADERS` after the metric."""
    s, c, printed = measured.summary, measured.compared, measured.printed
    d, better = (c.difference, c.improvement) if c else (None, None)
    return [
        s.mean if s else None,
        s.sd if s else None,
        s.n if s else 0,
        row.planned,
        d.mean if d else None,
        d.low if d else None,
        d.high if d else None,
        d.n if d else None,
        d.method if d else None,
        *((c.permutation, c.p, c.wilcoxon, c.p_wilcoxon, c.dz, c.delta) if c else (None,) * 6),
        *((better.probability, better.low, better.high) if better else (None,) * 3),
        measured.half,
        row.tuning,
        printed.value if printed else None,
        printed.sd if printed else None,
        "percent" if printed and printed.scale != 1 else None,
        printed.slip if printed else None,
        " ".join(row.run_ids),
        "; ".join(row.gaps),
    ]
