"""Lay out a comparison as a matrix: a factor's levels as columns, an effect in each cell."""

from reports.frame import OTHER, Frame
from reports.tables import labels
from reports.tables.comparison import find_method_column
from reports.tables.model import Field, Sheet, TableData, TableRow
from reports.tables.verdict import Verdict, judge_tables
from trainables.words.metrics import display_scale, format_metric_label

COLUMNS = ("metric", "mean", "n", "delta", "delta_low", "delta_high", "verdict", "family")


def build_matrix(frame: Frame, table: TableData, factor: str) -> Sheet:
    """Return the matrix of a comparison by its first metric.

    A row has a level of each other factor. A cell has the difference to the baseline at the same
    level of `factor`, with interval and verdict; those of the baseline have its mean.

    Args:
        factor: name of a label column of `table`, whose levels are the columns of the matrix.
    """
    metric, column = table.metrics[0], table.headers.index(factor)
    others = [name for name in table.headers if name != factor]
    verdicts = {verdict.cell: verdict for verdict in judge_tables(frame, [table])}
    grid: dict[tuple[str, ...], dict[str, Field]] = {}
    columns, numbers = dict[str, None](), list[tuple[object, ...]]()
    for row in table.rows:
        if row.printed_only:
            continue
        names = list(row.levels)
        names[find_method_column(table.recipe, table.headers)] += OTHER * row.cell.endswith(OTHER)
        level = names.pop(column)
        columns[level] = None
        verdict, measured = verdicts.get(row.cell), row.measured[metric]
        grid.setdefault((*names,), {})[level] = _format_cell(table, row, verdict)
        gap, summary = measured.difference, measured.summary
        numbers.append(
            (
                *(*names, level, metric),
                *((summary.mean, summary.n) if summary else (None, 0)),
                *((gap.mean, gap.low, gap.high) if gap else (None,) * 3),
                *((verdict.call, verdict.family) if verdict else (None, None)),
            )
        )
    return Sheet(
        table.recipe.model_copy(update={"caption": ""}),
        key=labels.to_slug(f"matrix_{table.recipe.study}"),
        title=f"{table.title}: differences in {format_metric_label(metric)}",
        headers=(*labels.format_coordinates(others), *columns),
        labels=len(others),
        rows=tuple(
            (*map(Field, names), *(cells.get(level, Field("")) for level in columns))
            for names, cells in grid.items()
        ),
        columns=(*others, factor, *COLUMNS),
        numbers=tuple(numbers),
        notes=(
            "Baseline: its mean. Same: the row equals another one, or tuning preferred its method "
            "switched off.",
            *(note for note in table.notes if note.startswith(("Δ:", "Bold:"))),
        ),
    )


def _format_cell(table: TableData, row: TableRow, verdict: Verdict | None) -> Field:
    """Write the mean of a baseline, `+0.52 [+0.11, +0.93] better`, or why there is neither."""
    metric, digits = table.metrics[0], table.recipe.digits
    measured, runs = row.measured[metric], (table.recipe.study, row.cell)
    if measured.summary is None:
        return Field("missing" if row.planned else "refused", hint="; ".join(row.gaps))
    if row.baseline or measured.difference is None:
        mean = measured.summary.mean * display_scale(metric)
        return Field(labels.format_number(mean, digits), measured=True, of=runs)
    gap = measured.difference
    text = labels.format_with_interval(gap.mean, gap.low, gap.high, metric, digits)
    call = f" {verdict.call}" if verdict else ""
    call += f" ({verdict.failed})" if verdict and verdict.failed else ""
    return Field(text + call, measured=True, bold=measured.better, of=runs)
