"""Write a table as CSV: unrounded numbers, one line for each row and metric."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from reports.tables.model import AnyTable, MeasuredMetric, Sheet, TableRow

CSV_HEADERS = (
    *("metric", "mean", "sd", "n", "planned"),
    *("delta", "delta_low", "delta_high", "delta_n", "delta_method", "verdict", "same_as"),
    *("p", "p_holm", "p_wilcoxon", "p_wilcoxon_holm", "cohens_dz", "cliffs_delta"),
    *("p_better", "p_better_low", "p_better_high", "half_95", "tuning_trials"),
    *("published", "published_sd", "published_unit", "published_slip", "run_ids", "gaps"),
)
# first characters of a formula in a spreadsheet
SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def escape_formula(value: Any) -> Any:
    """Return a value of a cell; text that a spreadsheet would run as a formula gets an apostrophe.

    A formula can read other files, and names come from specs and folders of pictures. Numbers stay
    numbers, whatever sign they have.
    """
    if not isinstance(value, str) or not value.startswith(SIGNS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def to_csv(table: AnyTable) -> str:
    """Write a table in long form: one line per row and metric; measured values on [0, 1]."""
    rows: list[Sequence[object]] = []
    if isinstance(table, Sheet):
        rows += [table.columns, *table.numbers]
    else:
        rows.append(["cell", *table.headers, *CSV_HEADERS])
        rows += [
            [row.cell, *row.labels, metric, *_collect_numbers(row, measured)]
            for row in table.rows
            for metric, measured in row.measured.items()
        ]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(map(escape_formula, row) for row in rows)
    return out.getvalue()


def _collect_numbers(row: TableRow, measured: MeasuredMetric) -> list[object]:
    """Return the numbers of `CSV_HEADERS` after the metric."""
    mean, c, printed = measured.summary, measured.compared, measured.printed
    d, chance, judgement = (c.difference, c.improvement, c.judgement) if c else (None, None, None)
    return [
        *((mean.mean, mean.sd, mean.n) if mean else (None, None, 0)),
        row.planned,
        *((d.mean, d.low, d.high, d.n, d.method) if d else (None,) * 5),
        *((judgement.call or "same", judgement.same_as) if judgement else (None, None)),
        *((c.permutation, c.p, c.wilcoxon, c.p_wilcoxon, c.dz, c.delta) if c else (None,) * 6),
        *((chance.probability, chance.low, chance.high) if chance else (None,) * 3),
        *(measured.half, row.tuning),
        *((printed.value, printed.sd) if printed else (None, None)),
        "percent" if printed and printed.scale != 1 else None,
        printed.slip if printed else None,
        *(" ".join(row.run_ids), "; ".join(row.gaps)),
    ]
