"""Build the tables of a recipe, with effects and importances."""

from __future__ import annotations

from dataclasses import replace

from reports.frame import OTHER, Frame
from reports.kinds import load_kind
from reports.recipe import Recipe, Table
from reports.tables.model import AnyTable


def build_table(frame: Frame, recipe: Table) -> AnyTable:
    """Build one table.

    Raises:
        ReportError: the recipe names a study, baseline or published row that does not exist.
    """
    cells = frame.select_study(recipe.study)
    if recipe.kind != "compare":  # effects are of factors, and such a row has no level of its own
        cells = cells[~cells["cell"].str.endswith(OTHER)]
    table: AnyTable = load_kind("tables", recipe.kind)(frame, recipe, cells)
    return table


def build_all(frame: Frame, recipe: Recipe) -> list[AnyTable]:
    """Build all tables of a recipe in order.

    A table of a search is followed by importances, and one of components or crossed factors by
    effects, unless the recipe has such a table or says `alone`. Tables without rows are left out,
    and their notes go to the table before.
    """
    recipe_parts: set[tuple[str, str]] = {(part.kind, part.study) for part in recipe.tables}
    tables: list[AnyTable] = []
    for part in recipe.tables:
        table = build_table(frame, part)
        kind = _choose_companion(frame, part)
        if kind is None or part.alone or (kind, part.study) in recipe_parts:
            tables.append(table)
            continue
        name = "effects" if kind == "effects" else "importances"
        companion = Table(
            kind=kind,
            study=part.study,
            metrics=table.recipe.metrics[:1],
            title=f"{part.title or part.study}: {name}",
            digits=part.digits,
        )
        with_it = build_table(frame, companion)
        if with_it.rows:
            tables += [table, with_it]
        else:
            tables.append(replace(table, notes=(*table.notes, *with_it.notes[1:])))
        recipe_parts.add((kind, part.study))
    return tables


def _choose_companion(frame: Frame, part: Table) -> str | None:
    if part.kind == "search":
        return "importance"
    if part.kind not in ("components", "compare"):
        return None
    if frame.get_design(part.study) in ("one_factor", "promote"):
        return None
    varied: dict[str, set[str]] = {}
    for coords in frame.select_study(part.study)["coords"]:
        for name, value in coords.items():
            varied.setdefault(name, set()).add(repr(value))
    return "effects" if sum(len(levels) > 1 for levels in varied.values()) > 1 else None
