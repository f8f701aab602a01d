"""Write a table as CSV: unrounded numbers, one line for each row and metric."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from reports.tables.model import AnyTable, MeasuredMetric, Sheet, TableRow

CSV_HEADERS = (
    *("metric", "mean", "sd", "n", "planned", "runs", "failed"),
    *("delta", "delta_low", "delta_high", "delta_n", "delta_method", "verdict", "same_as"),
    *("level", "chance_worse", "chance_within", "chance_better", "searches_sd"),
    *("delta_same_rates", "delta_same_rates_low", "delta_same_rates_high", "delta_same_rates_n"),
    *("p", "p_holm", "cohens_dz", "cliffs_delta"),
    *("p_better", "p_better_low", "p_better_high", "half_95", "tuning_trials"),
    *("published", "published_sd", "published_unit", "published_slip", "run_ids", "gaps"),
)
# first characters of a formula in a spreadsheet
SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def escape_formula(value: Any) -> Any:
    """Return a CSV file's field, with an apostrophe before a text that looks like a formula.

    A spreadsheet runs a formula, which can read other files, and names in a table come from specs
    and folders of pictures. A number with a sign, such as `-0.5`, stays as it is.
    """
    if not isinstance(value, str) or not value.startswith(SIGNS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def to_csv(table: AnyTable) -> str:
    """Write a table in long form: one line per row and metric; shares are not in per cent."""
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
    """Return a CSV line's fields after `metric`; a row equal to another has the verdict `same`."""
    summary, pair, printed = measured.summary, measured.compared, measured.printed
    gap, chance, judgement, same_rates = None, None, None, measured.same_rates
    if pair is not None:  # the row compared with its baseline
        gap, chance, judgement = pair.difference, pair.improvement, pair.judgement
    return [
        *((summary.mean, summary.sd, summary.n) if summary else (None, None, 0)),
        *(row.planned, row.runs, row.failed),
        *((gap.mean, gap.low, gap.high, gap.n, gap.method) if gap else (None,) * 5),
        *((judgement.call or "same", judgement.same_as) if judgement else (None, None)),
        pair.level if pair else None,
        *((pair.chances if pair else None) or (None,) * 3),
        pair.searches_sd if pair else None,
        *((same_rates.mean, same_rates.low, same_rates.high) if same_rates else (None,) * 3),
        same_rates.n if same_rates else None,
        *((pair.permutation, pair.p, pair.dz, pair.delta) if pair else (None,) * 4),
        *((chance.probability, chance.low, chance.high) if chance else (None,) * 3),
        *(measured.half, row.tuning),
        *((printed.value, printed.sd) if printed else (None, None)),
        "percent" if printed and printed.scale != 1 else None,
        printed.slip if printed else None,
        *(" ".join(row.run_ids), "; ".join(row.gaps)),
    ]
