"""Build the tables of a recipe, with effects and importances.

Images of a single class have 100 % whatever the model is. Values of such a split are no result, so
no table shows them.
"""

from dataclasses import replace

from reports.frame import DataFrame, Frame
from reports.kinds import TABLES
from reports.recipe import Recipe, Table
from reports.tables.comparison import put_primary_first
from reports.tables.labels import to_slug
from reports.tables.matrix import build_matrix
from reports.tables.model import AnyTable, Sheet, TableData
from trainables.words.metrics import is_share


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
    return tables


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
