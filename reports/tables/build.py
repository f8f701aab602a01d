"""Build the tables of a recipe, with effects and importances."""

from dataclasses import replace

from reports.frame import Frame
from reports.kinds import load_kind
from reports.recipe import Recipe, Table
from reports.tables.matrix import build_matrix
from reports.tables.model import AnyTable, TableData


def build_table(frame: Frame, recipe: Table) -> AnyTable:
    """Build one table; ReportError names a missing study, baseline or published row."""
    select = frame.select_study if recipe.kind == "compare" else frame.select_combinations
    cells = select(recipe.study)
    table: AnyTable = load_kind("tables", recipe.kind)(frame, recipe, cells)
    return table


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
