"""Cells beside a baseline cell: all on/off cells of components, variants, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reports.errors import ReportError
from reports.frame import Frame
from reports.published import papers
from reports.published.papers import PrintedValue
from reports.recipe import Table, level_name
from reports.stats.describe import half_width, summary
from reports.stats.paired import (
    cliffs_delta,
    cohens_dz,
    holm,
    paired_difference,
    pairs,
    permutation_p,
    probability_of_improvement,
    wilcoxon_p,
)
from reports.tables.cells import (
    EMPTY,
    NEUTRAL,
    by_cell,
    fold_notes,
    gaps,
    protocol,
    protocol_note,
    race_notes,
    run_ids,
)
from reports.tables.labels import level, lower_is_better, slug
from reports.tables.model import Comparison, Measured, TableData, TableRow
from reports.tables.notes import BOLD, Tuning, difference_notes, limit_notes, tuning, tuning_notes
from reports.tables.rows import (
    baselines,
    data_of,
    mark_neutral,
    neutral_notes,
    order_rows,
    printed_rows,
    refused_notes,
    refused_rows,
)
from reports.tables.verdict import judge

if TYPE_CHECKING:
    import pandas as pd

ON, OFF = "✓", "–"


def component_order(cells: pd.DataFrame, recipe: Table) -> list[str]:
    """Return the components in the recipe's order, or as the study's own cell names list them."""
    if recipe.components:
        return list(recipe.components)
    names = list(cells["coords"].iloc[0]) if len(cells) else []
    first = str(cells["cell"].iloc[0]) if len(cells) else ""
    return sorted(names, key=lambda name: (first.find(f"{name}="), name))


def compared(frame: Frame, recipe: Table, cells: pd.DataFrame) -> TableData:
    """Return each cell's metrics and its difference to the baseline cell, paired by seed."""
    order = order_rows(dict.fromkeys(cells["cell"]))
    groups = dict(iter(cells.groupby("cell", sort=False)))
    coords = {cell: _coords(groups[cell]) for cell in order}
    if recipe.kind == "components":
        # The paper's order where it prints these rows, else by how many are on (the plan's).
        printed = _printed_order(recipe)
        order.sort(key=lambda c: (printed.get(_key(coords[c]), len(printed)), _on(coords[c])))
    headers = _headers(recipe, cells, coords)
    baseline = _baseline(recipe, coords, order)
    tuned = tuning(frame, recipe.study)
    data = data_of(frame.trials, cells)
    against = baselines(data, coords, baseline, recipe.within)
    every = {metric: by_cell(cells, metric) for metric in recipe.metrics}
    rows: list[TableRow] = []
    for cell in order:
        mine = groups[cell]
        measured = {}
        for metric in recipe.metrics:
            values = every[metric][cell]
            measured[metric] = Measured(
                summary(list(values.values())),
                half_width(list(values.values())),
                None
                if against.get(cell) in (cell, None)
                else _comparison(metric, values, every[metric].get(against[cell], {})),
                _printed(recipe, metric, cell, coords[cell]),
            )
        labels = mark_neutral(_labels(recipe, headers, cell, coords[cell]), cell, order)
        seeds = mine["seed"].nunique()
        rows.append(
            TableRow(
                cell,
                labels,
                measured,
                run_ids(mine),
                seeds,
                gaps(mine),
                cell == against.get(cell),
                tuned.trials.get(cell),
                tuned.text(cell),
                against.get(cell),
            )
        )
    rows = _finished(rows, recipe)
    others = refused_rows(frame, recipe, lambda cell, own: _labels(recipe, headers, cell, own))
    return TableData(
        recipe,
        slug(f"table_{recipe.study}"),
        recipe.title or recipe.study,
        headers,
        (*rows, *others, *printed_rows(recipe, headers, rows)),
        (
            *_data_notes(data, against, recipe),
            *_notes(frame, recipe, rows, tuned),
            *neutral_notes(order),
            *fold_notes(cells, recipe.metrics),
            *refused_notes(frame, recipe.study),
        ),
    )


def _comparison(metric: str, values: Mapping[int, float], base: Mapping[int, float]) -> Comparison:
    differences = list(pairs(values, base))
    mine, theirs = list(values.values()), list(base.values())
    return Comparison(
        paired_difference(values, base),
        permutation_p(differences),
        wilcoxon_p(differences),
        cohens_dz(differences),
        cliffs_delta(mine, theirs),
        probability_of_improvement(
            *((theirs, mine) if lower_is_better(metric) else (mine, theirs))
        ),
        zero=len(differences) > 0 and not any(differences),
    )


def _headers(
    recipe: Table, cells: pd.DataFrame, coords: Mapping[str, Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return components, or crossed factors; else one column with the cells' names."""
    if recipe.kind == "components":
        return tuple(component_order(cells, recipe))
    shapes = {tuple(keys) for keys in coords.values()}
    names = next(iter(shapes)) if len(shapes) == 1 else ()
    if names == ("variant",) or len(names) > 1:
        return names
    return ("cell",)


def _labels(
    recipe: Table, headers: tuple[str, ...], cell: str, coords: Mapping[str, Any]
) -> tuple[str, ...]:
    if recipe.kind == "components":
        return tuple(ON if coords.get(name) == "on" else OFF for name in headers)
    if headers == ("cell",):
        return (cell,)
    return tuple(level(coords[name]) for name in headers)


def _coords(mine: pd.DataFrame) -> dict[str, Any]:
    """Return the coordinates of one cell's rows."""
    coords_of_cell: dict[str, Any] = mine["coords"].iloc[0]
    return {key: level_name(value) for key, value in coords_of_cell.items() if key != NEUTRAL}


def _key(coords: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in coords.items()))


def _on(coords: Mapping[str, Any]) -> int:
    return sum(value == "on" for value in coords.values())


def _printed_order(recipe: Table) -> dict[tuple[tuple[str, str], ...], int]:
    if recipe.published is None:
        return {}
    rows = papers.table(recipe.published.table).rows
    return {_key(row.coords): i for i, row in enumerate(rows) if row.coords}


def _baseline(recipe: Table, coords: Mapping[str, Mapping[str, Any]], order: list[str]) -> str:
    wanted = recipe.baseline
    for cell in order:
        mine = coords[cell]
        if isinstance(wanted, dict):
            if all(level(mine.get(key)) == level(value) for key, value in wanted.items()):
                return cell
        elif wanted is not None:
            if wanted in (cell, mine.get("variant")):
                return cell
        elif recipe.kind == "compare" or _on(mine) == 0:
            return cell
    if not order:
        return ""
    place = f"report: baseline {wanted!r} of the table on {recipe.study}"
    raise ReportError(f"{place} is no cell; the cells are {', '.join(order)}")


def _printed(
    recipe: Table, metric: str, cell: str, coords: Mapping[str, Any]
) -> PrintedValue | None:
    column = recipe.published_column(metric)
    if recipe.published is None or column is None:
        return None
    table = papers.table(recipe.published.table)
    names = (recipe.published.row(each, metric) for each in (cell, str(coords.get("variant"))))
    name = next(filter(None, names), None)
    row = table.row(name) if name else table.row_at(coords)
    return None if row is None else table.value(row, column)


def _finished(rows: list[TableRow], recipe: Table) -> list[TableRow]:
    """Add to rows their corrected p, and a mark where the verdict on a metric is "better"."""
    place = {row.cell: i for i, row in enumerate(rows)}
    measured: list[dict[str, Measured]] = [dict(row.measured) for row in rows]
    for metric in recipe.metrics:
        comparisons = [of_row[metric].compared for of_row in measured]
        p = holm([t.permutation if t else None for t in comparisons])
        p_wilcoxon = holm([t.wilcoxon if t else None for t in comparisons])
        for i, (row, of_row) in enumerate(zip(rows, measured, strict=True)):
            other = comparisons[i]
            corrected = other and replace(other, p=p[i], p_wilcoxon=p_wilcoxon[i])
            of_row[metric] = replace(of_row[metric], compared=corrected)
            if row.against in place and not row.baseline:
                base = measured[place[row.against]][metric]
                better = judge(metric, of_row[metric], base) == "better"
                of_row[metric] = replace(of_row[metric], better=better)
    return [replace(row, measured=of_row) for row, of_row in zip(rows, measured, strict=True)]


def _notes(frame: Frame, recipe: Table, rows: list[TableRow], tuned: Tuning) -> list[str]:
    notes = [protocol_note(frame, recipe.metrics), *race_notes(frame, recipe.study)]
    if recipe.spread == "t95":
        notes.append(
            "±: half the 95 % interval of the mean, t with n − 1 degrees of freedom times sd/√n, "
            "as the reality check's code has it."
        )
    if any(result.better for row in rows for result in row.measured.values()):
        notes.append(BOLD)
    notes += [*difference_notes(rows), *limit_notes(recipe.metrics, rows)]
    notes += tuning_notes(tuned, rows)
    if recipe.published is not None:
        table = papers.table(recipe.published.table)
        columns = ", ".join(
            sorted({c for m in recipe.metrics if (c := recipe.published_column(m)) is not None})
        )
        notes.append(
            f"Published: {table.source} of “{table.paper}”, {columns}, as printed, "
            f"{table.protocol}; another data set and backbone than measured unless they agree."
        )
        if protocol(frame) not in (EMPTY, table.protocol):
            notes.append(
                f"Measured numbers are {protocol(frame)} and published ones {table.protocol}: of "
                "the differences between them, some is the protocol's."
            )
        for row in rows:
            for result in row.measured.values():
                if result.printed is not None and result.printed.slip:
                    value = result.printed.value
                    notes.append(f"Published {value:g} is marked: {result.printed.slip}.")
    notes += [f"Without a result: {gap}." for row in rows for gap in row.gaps]
    return notes


def _data_notes(data: Mapping[str, str], against: Mapping[str, str], recipe: Table) -> list[str]:
    factors = " and ".join(recipe.within)
    notes = [f"Differences are taken at the same {factors}."] if factors else []
    count = len(set(data.values()))
    if count > 1:
        notes.append(f"Rows are on {count} data sets: differences are taken within each of them.")
    if alone := [cell for cell in data if cell not in against]:
        notes.append(f"No baseline to compare with: {', '.join(alone)}.")
    return notes
