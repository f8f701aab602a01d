"""Build the tables of a recipe, with effects, importances, matrices and sources of settings.

Images of a single class have 100 % whatever the model is. Values of such a split are no result, so
no table shows them.
"""

import json
from dataclasses import replace

from reports.frame import OTHER, DataFrame, Frame
from reports.kinds import TABLES
from reports.recipe import Recipe, Table
from reports.tables import labels
from reports.tables.comparison import find_method_column, put_primary_first
from reports.tables.labels import to_slug
from reports.tables.model import AnyTable, Field, Sheet, TableData, TableRow
from reports.tables.verdict import Verdict, judge_tables
from trainables.words.metrics import display_scale, format_metric_label, is_share


def build_table(frame: Frame, recipe: Table) -> AnyTable:
    """Build one table; ReportError names a missing study, baseline or published row.

    Metrics of a split whose shares are all 0 or 100 % are left out. Without the metric that orders
    or compares the rows, the table has no rows.
    """
    select = frame.select_study if recipe.kind == "compare" else frame.select_combinations
    cells = select(recipe.study)
    constant = find_constant_splits(cells)
    shown = tuple(name for name in recipe.metrics if name.partition("/")[0] not in constant)
    is_compared = recipe.kind in ("compare", "components")
    deciding = (put_primary_first(frame, recipe) if is_compared else recipe).metrics[0]
    note = (
        f"Not shown: results on {', '.join(sorted(constant))}, where every trial has 0 or 100 %, as"
        " images of a single class always have. Take more classes, or a harder task."
    )
    if deciding not in shown:
        key, title = to_slug(f"table_{recipe.study}"), recipe.title or recipe.study
        return Sheet(
            recipe, key, title, ("cell",), 1, rows=(), columns=(), numbers=(), notes=(note,)
        )
    is_complete = shown == recipe.metrics
    recipe = recipe if is_complete else recipe.model_copy(update={"metrics": shown})
    table: AnyTable = TABLES[recipe.kind](frame, recipe, cells)
    return table if is_complete else replace(table, notes=(*table.notes, note))


def find_constant_splits(cells: DataFrame) -> set[str]:
    """Return the splits on which every share of every trial is exactly 0 or 1."""
    values: dict[str, set[float]] = {}
    for name in filter(is_share, map(str, cells.columns)):
        values.setdefault(name.partition("/")[0], set()).update(map(float, cells[name].dropna()))
    return {split for split, shares in values.items() if shares and shares <= {0.0, 1.0}}


def build_all(frame: Frame, recipe: Recipe) -> list[AnyTable]:
    """Build all tables of a recipe in order, some with a companion table after them.

    The companion of a search is its importances, and that of components or crossed factors their
    effects, unless the recipe has such a table or says `alone`. A companion without rows is left
    out, and its notes go to the table before it.
    """
    kinds: set[tuple[str, str]] = {(part.kind, part.study) for part in recipe.tables}
    tables: list[AnyTable] = []
    for part in recipe.tables:
        table = build_table(frame, part)
        if part.matrix is not None and isinstance(table, TableData):
            tables.append(build_matrix(frame, table, part.matrix))
        tables.append(table)
        kind = _choose_companion(frame, part)
        if kind is None or part.alone or (kind, part.study) in kinds:
            continue
        kinds.add((kind, part.study))
        title = f"{part.title or part.study}: {kind if kind == 'effects' else 'importances'}"
        shown = {"metrics": table.recipe.metrics[:1], "title": title, "digits": part.digits}
        companion = build_table(frame, Table(kind=kind, study=part.study, **shown))
        if companion.rows:
            tables.append(companion)
        else:  # its first note, on how values were measured, is in the table already
            tables[-1] = replace(table, notes=(*table.notes, *companion.notes[1:]))
    sources = build_source_sheet(frame, recipe)
    return [*tables, *([sources] if sources else [])]


def _choose_companion(frame: Frame, part: Table) -> str | None:
    """Return the kind of table that should follow a table: "importance", "effects", or None."""
    if part.kind == "search":
        return "importance"
    can_be_crossed = frame.get_design(part.study) not in ("one_factor", "promote")
    if part.kind not in ("components", "compare") or not can_be_crossed:
        return None  # the table has no crossed factors
    levels: dict[str, set[str]] = {}
    for coords in frame.select_study(part.study)["coords"]:
        for name, value in coords.items():
            levels.setdefault(name, set()).add(repr(value))
    return "effects" if sum(len(values) > 1 for values in levels.values()) > 1 else None  # two vary


MATRIX_COLUMNS = ("metric", "mean", "n", "delta", "delta_low", "delta_high", "verdict", "family")


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
        columns=(*others, factor, *MATRIX_COLUMNS),
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


SOURCES_TITLE = "Where each setting comes from"
SOURCES = "sources"
SOURCES_NOTE = (
    "Sources are those in the recipe's sources file. Studies named `…_fair` search some of these "
    "settings, for which the source then does not apply."
)
SOURCES_HEADERS = ("studies", "rows", "setting", "value", "source")


def build_source_sheet(frame: Frame, recipe: Recipe) -> Sheet | None:
    """Return a table of the source of each setting in studies that have begun; None if empty."""
    begun = [name for name in frame.study_order if name not in frame.studies_without_cells]
    lines = []
    for block in recipe.sources:
        if not block.includes_any(begun):
            continue
        patterns = ["all" if p == ("*",) else ", ".join(p) for p in (block.studies, block.rows)]
        for field, value, source in block.list_entries():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append((*patterns, field, text, source))
    if not lines:
        return None
    placeholder = Table(kind="compare", study=begun[0], title=SOURCES_TITLE)  # a sheet needs one
    return Sheet(
        placeholder,
        key=SOURCES,
        title=SOURCES_TITLE,
        headers=SOURCES_HEADERS,
        labels=len(SOURCES_HEADERS),  # all columns have words
        rows=tuple(tuple(map(Field, line)) for line in lines),
        columns=SOURCES_HEADERS,
        numbers=tuple(lines),
        notes=(SOURCES_NOTE,),
    )
