"""Choose the rows of a comparison and the baseline of each.

If a neutral cell was the best of a method's tuning, its row equals the plain loss; the best other
cell follows as a row whose name ends in `OTHER`. A combination that no trial can have has a row
without numbers, and a row that a paper prints has printed numbers only.

Differences between data sets say nothing about methods. If a study has several data sets, each has
its own baseline row: the cell that equals the baseline in all factors except those that name the
data set. `within` in a recipe does the same for other factors.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reports.frame import OTHER, DataFrame, Frame
from reports.published import papers
from reports.recipe import Table
from reports.tables.cells import count_searches
from reports.tables.labels import format_level
from reports.tables.model import MeasuredMetric, TableRow


def build_printed_rows(
    recipe: Table, headers: Sequence[str], rows: Sequence[TableRow]
) -> list[TableRow]:
    """Return the rows that only a paper has, if the recipe's `published.others` asks for them."""
    published = recipe.published
    if published is None or not published.others:
        return []
    table = papers.load_published_table(published.table)
    printed_rows = table.rows
    if published.others is not True:
        printed_rows = tuple(table.find_rows_like(published.others))
    results = (result.printed for row in rows for result in row.measured.values())
    shown_beside_cells = {printed.row for printed in results if printed is not None}
    more = []
    for row in printed_rows:
        measured = {}
        for metric in recipe.metrics:
            column = recipe.find_published_column(metric)
            printed = table.get_printed_value(row, column) if column else None
            measured[metric] = MeasuredMetric(None, printed=printed)
        has_number = any(result.printed for result in measured.values())
        if has_number and row.name not in shown_beside_cells:
            labels = (f"{row.name} (published only)", *[""] * (len(headers) - 1))
            more.append(TableRow(row.name, labels, measured, (), 0, printed_only=True))
    return more


def map_cells_to_data(trials: DataFrame, cells: DataFrame) -> dict[str, str]:
    """Return cell → fingerprint (or name) of its data set; cells without runs are left out."""
    columns = (trials["run_id"], trials["tags"], trials["params"])
    data_of_run = {
        run: tags.get("ablate.data_fingerprint") or params.get("data.name")
        for run, tags, params in zip(*columns, strict=True)
    }
    runs = zip(cells["cell"], cells["run_id"], strict=True)
    return {cell: str(data_of_run[run]) for cell, run in runs if data_of_run.get(run)}


def find_baselines(
    data: Mapping[str, str],
    coords: Mapping[str, Mapping[str, Any]],
    baseline: str,
    within: Sequence[str] = (),
) -> dict[str, str]:
    """Return cell → the cell it is compared with; cells without such a cell are left out.

    A cell is compared with the table's `baseline`, or with the cell on the same data set and with
    the same levels of the factors in `within` that equals `baseline` in all other factors.

    Args:
        data: cell → key of its data set.
        coords: cell → coordinates.
    """
    has_several = len(set(data.values())) > 1  # data sets
    if not has_several and not within:
        return dict.fromkeys(coords, baseline)

    # groups of cells on one data set, with equal levels of the factors in `within`
    cells = [cell for cell in coords if cell in data or not has_several]  # others have no result
    data_of = {cell: data[cell] if has_several else "" for cell in cells}
    groups: dict[tuple[str, ...], list[str]] = {}
    for cell in cells:
        levels = (format_level(coords[cell].get(name)) for name in within)
        groups.setdefault((data_of[cell], *levels), []).append(cell)

    def is_factor(name: str) -> bool:
        """Return False for a coordinate that only names the data set, a different name for each."""
        pairs = {(data_of[cell], format_level(coords[cell].get(name))) for cell in cells}
        data_set_count, level_count = len({*data_of.values()}), len({level for _, level in pairs})
        # True if some data set has several levels, or several data sets have the same level
        return len(pairs) > data_set_count or level_count < data_set_count

    # the baseline of each group equals the table's baseline in all factors
    names = {name for coordinates in coords.values() for name in coordinates} - {*within}
    factors = [name for name in names if is_factor(name)]

    def get_levels(cell: str) -> list[str]:
        return [format_level(coords[cell].get(name)) for name in factors]

    baselines: dict[str, str] = {}
    for group in groups.values():
        equal = [cell for cell in group if get_levels(cell) == get_levels(baseline)]
        if equal:
            baselines |= dict.fromkeys(group, baseline if baseline in group else equal[0])
    return baselines


def describe_neutral(cells: DataFrame, others: DataFrame) -> str:
    """Say that a row's best configuration is neutral, or in how many of several searches it is.

    Args:
        cells: the row's cells. others: those of its second row, in which the method is on.
    """
    trials, on = (rows.groupby("study")["trial_id"].agg(set) for rows in (cells, others))
    number = sum(trials.get(study) != ids for study, ids in on.items())
    count = count_searches(cells)
    return "best is neutral" + (f" in {number} of {count} searches" if number < count else "")


def explain_rows(
    frame: Frame,
    recipe: Table,
    rows: Sequence[TableRow],
    *,
    data: Mapping[str, str],
    neutral: Mapping[str, str],
) -> list[str]:
    """Return notes on which rows are compared, which were refused, and which are neutral.

    Args:
        data: row that needs a baseline → its data set.
        neutral: row whose best configuration switches the method off → this fact in words.
    """
    notes = []
    if recipe.within:
        notes.append(f"Differences are taken at the same {' and '.join(recipe.within)}.")
    if (count := len(set(data.values()))) > 1:
        notes.append(f"Rows are on {count} data sets: differences are taken within each of them.")
    if alone := [row.cell for row in rows if row.cell in data and row.against is None]:
        notes.append(f"No baseline to compare with: {', '.join(alone)}.")
    by_words: dict[str, list[str]] = {}
    for cell, words in neutral.items():
        by_words.setdefault(words, []).append(cell)
    notes += [
        f"{', '.join(cells)}: {words}. {'In these searches no' if 'searches' in words else 'No'} "
        "configuration was better in validation than the plain loss at the best learning rates of "
        f"the baseline; “{OTHER.removeprefix(', ')}”: the best other one."
        for words, cells in by_words.items()
    ]
    by_reason: dict[str, list[str]] = {}
    for refused in frame.get_plan_note("refused", recipe.study) or []:
        by_reason.setdefault(refused["reason"].rstrip("."), []).append(refused["cell"])
    return notes + [f"Refused: {'; '.join(names)}: {text}." for text, names in by_reason.items()]
