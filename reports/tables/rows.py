"""Choose the rows of a comparison and the baseline of each.

If a neutral cell was the best of a method's tuning, its row equals the plain loss; the best other
cell follows as a row whose name ends in `OTHER`. A combination that no trial can have has a row
without numbers, and a row that a paper prints has printed numbers only.

Differences between data sets say nothing about methods. If a study has several data sets, each has
its
own baseline row: the cell that equals the baseline in all factors except those that name the data
set. `within` in a recipe does the same for other factors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reports.frame import OTHER, Frame
from reports.published import papers
from reports.recipe import Table
from reports.tables.labels import format_level
from reports.tables.model import MeasuredMetric, TableRow

if TYPE_CHECKING:
    import pandas as pd


def order_rows(cells: Iterable[str]) -> list[str]:
    """Return the cells in order, each "best other cell" after its row."""
    every = list(cells)
    rows = [cell for cell in every if not cell.endswith(OTHER)]
    return [name for row in rows for name in (row, row + OTHER) if name in every]


def mark_neutral(labels: tuple[str, ...], cell: str, cells: Collection[str]) -> tuple[str, ...]:
    """Return the labels of a row with a mark if its best is neutral, or if it leaves neutral cells
    out."""
    if cell + OTHER in cells:
        return (f"{labels[0]} (best is neutral)", *labels[1:])
    if cell.endswith(OTHER):
        return (f"{labels[0].removesuffix(OTHER)}{OTHER}", *labels[1:])
    return labels


def explain_neutral_rows(cells: Collection[str]) -> list[str]:
    """Return a note for each row whose best is neutral."""
    return [
        f"{cell}: best is neutral. No configuration tried was better in validation than "
        f"the plain loss at the best rates of the baseline; {cell}{OTHER}: the best other one."
        for cell in cells
        if cell + OTHER in cells
    ]


def build_refused_rows(
    frame: Frame, recipe: Table, labels: Callable[[str, Mapping[str, Any]], tuple[str, ...]]
) -> list[TableRow]:
    """Return a row for each combination that no valid trial has."""
    nothing = dict.fromkeys(recipe.metrics, MeasuredMetric(None))
    return [
        TableRow(refused["cell"], labels(refused["cell"], refused["coords"]), nothing, (), 0)
        for refused in frame.get_plan_note("refused", recipe.study) or []
    ]


def explain_refused_rows(frame: Frame, study: str) -> list[str]:
    """Return the planner's reasons, one note each."""
    by_reason: dict[str, list[str]] = {}
    for refused in frame.get_plan_note("refused", study) or []:
        by_reason.setdefault(refused["reason"], []).append(refused["cell"])
    return [f"Refused: {'; '.join(cells)}: {why.rstrip('.')}." for why, cells in by_reason.items()]


def build_printed_rows(
    recipe: Table, headers: Sequence[str], rows: Sequence[TableRow]
) -> list[TableRow]:
    """Return the printed rows without a cell that the recipe asks for (`others`)."""
    published = recipe.published
    if published is None or not published.others:
        return []
    table = papers.load_published_table(published.table)
    wanted = table.rows if published.others is True else table.find_rows_like(published.others)
    columns = {metric: recipe.find_published_column(metric) for metric in recipe.metrics}
    printed = (result.printed for row in rows for result in row.measured.values())
    trained = {shown_row.row for shown_row in printed if shown_row is not None}
    more = []
    for row in wanted:
        measured = {
            metric: MeasuredMetric(
                None, printed=table.get_printed_value(row, column) if column else None
            )
            for metric, column in columns.items()
        }
        if row.name not in trained and any(shown_row.printed for shown_row in measured.values()):
            labels = (f"{row.name} (published only)", *[""] * (len(headers) - 1))
            more.append(TableRow(row.name, labels, measured, (), 0, printed_only=True))
    return more


def map_cells_to_data(trials: pd.DataFrame, cells: pd.DataFrame) -> dict[str, str]:
    """Return cell → key of its data set; cells without runs are left out.

    Args:
        trials: as in a `Frame`.
        cells: of one study.
    """
    columns = (trials["run_id"], trials["tags"], trials["params"])
    by_run = {
        run: tags.get("ablate.data_fingerprint") or params.get("data.name")
        for run, tags, params in zip(*columns, strict=True)
    }
    data: dict[str, str] = {}
    for cell, run in zip(cells["cell"], cells["run_id"], strict=True):
        if name := by_run.get(run):  # any of its seeds tells
            data.setdefault(cell, str(name))
    return data


def find_baselines(
    data: Mapping[str, str],
    coords: Mapping[str, Mapping[str, Any]],
    baseline: str,
    within: Sequence[str] = (),
) -> dict[str, str]:
    """Return cell → the baseline cell of its data set; cells without one are left out.

    Args:
        data: cell → key of its data set (`map_cells_to_data`).
        coords: cell → coordinates.
        baseline: the cell that the recipe names.
        within: factors in which a cell must equal its baseline.
    """
    several = len(set(data.values())) > 1
    if not several and not within:
        return dict.fromkeys(coords, baseline)
    groups: dict[tuple[str, ...], list[str]] = {}
    by_data: dict[str, list[str]] = {}
    for cell, coordinates in coords.items():
        if several and cell not in data:
            continue  # no run of it tells where it belongs, and it has no number
        alike = (format_level(coordinates.get(name)) for name in within)
        own_data = data[cell] if several else ""
        groups.setdefault((own_data, *alike), []).append(cell)
        by_data.setdefault(own_data, []).append(cell)
    names = {name for coordinates in coords.values() for name in coordinates if name not in within}
    real_factors = {
        name for name in names if _is_more_than_data_set_name(name, coords, [*by_data.values()])
    }
    baselines: dict[str, str] = {}
    wanted = {name: format_level(coords[baseline].get(name)) for name in real_factors}
    if not real_factors and not any(baseline in group for group in groups.values()):
        return {}
    for group in groups.values():
        first = [baseline] if baseline in group else group
        same = [
            c for c in first if {n: format_level(coords[c].get(n)) for n in real_factors} == wanted
        ]
        baselines |= dict.fromkeys(group, same[0]) if same else {}
    return baselines


def _is_more_than_data_set_name(
    name: str, coords: Mapping[str, Mapping[str, Any]], by_data: Sequence[Sequence[str]]
) -> bool:
    """Return whether a factor varies within a data set, or two data sets share its level."""
    levels = [{format_level(coords[cell].get(name)) for cell in cells} for cells in by_data]
    return any(len(found) > 1 for found in levels) or len(set().union(*levels)) < len(levels)


def explain_baselines(
    data: Mapping[str, str], against: Mapping[str, str], recipe: Table
) -> list[str]:
    """Say within which factors differences are taken, and which rows have no baseline."""
    notes = []
    if recipe.within:
        notes.append(f"Differences are taken at the same {' and '.join(recipe.within)}.")
    if (count := len(set(data.values()))) > 1:
        notes.append(f"Rows are on {count} data sets: differences are taken within each of them.")
    if alone := [cell for cell in data if cell not in against]:
        notes.append(f"No baseline to compare with: {', '.join(alone)}.")
    return notes
