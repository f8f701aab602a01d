"""Tables: the recipe and the frame become rows of measured, published and compared numbers.

`build` makes the table's data; `reports/render.py` writes it as text, Markdown, LaTeX and CSV.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from reports import published, stats
from reports.errors import ReportError
from reports.frame import Frame
from reports.names import level, metric_label, slug
from reports.recipe import Table
from reports.recipe import level_name as named

ON, OFF = "✓", "–"


@dataclass(frozen=True)
class Measured:
    """One metric of one row, on the scale [0, 1] of the runs.

    difference is to the baseline row, paired by seed; p is Holm-corrected over the table's rows.
    """

    summary: stats.Summary | None
    difference: stats.Difference | None = None
    p: float | None = None
    p_corrected: float | None = None
    printed: published.PrintedValue | None = None
    best: bool = False


@dataclass(frozen=True)
class TableRow:
    """One row: the labels on its left, a Measured per metric, and the runs behind them.

    planned: seeds planned; gaps: what is missing and why, one line each.
    """

    cell: str
    labels: tuple[str, ...]
    measured: Mapping[str, Measured]
    run_ids: tuple[str, ...]
    planned: int
    gaps: tuple[str, ...] = ()
    baseline: bool = False

    @property
    def n(self) -> int:
        found = [m.summary.n for m in self.measured.values() if m.summary]
        return max(found, default=0)


@dataclass(frozen=True)
class TableData:
    """A table, ready to be written."""

    recipe: Table
    key: str
    title: str
    headers: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.recipe.metrics

    def has(self, metric: str, what: str) -> bool:
        """Whether any row has a `difference`, `p_corrected` or `printed` of this metric."""
        return any(getattr(row.measured[metric], what) is not None for row in self.rows)


def build(frame: Frame, recipe: Table) -> TableData:
    """The data of one table.

    Raises:
        ReportError: the recipe names a study, baseline or published row that does not exist.
    """
    cells = frame.study(recipe.study)
    if recipe.kind == "search":
        return _search(frame, recipe, cells)
    return _compared(frame, recipe, cells)


def component_order(cells: pd.DataFrame, recipe: Table) -> list[str]:
    """The recipe's order, or that in which the study's own cell names list the components."""
    if recipe.components:
        return list(recipe.components)
    names = list(cells["coords"].iloc[0]) if len(cells) else []
    first = str(cells["cell"].iloc[0]) if len(cells) else ""
    return sorted(names, key=lambda name: (first.find(f"{name}="), name))


def _compared(frame: Frame, recipe: Table, cells: pd.DataFrame) -> TableData:
    components = component_order(cells, recipe) if recipe.kind == "components" else []
    order = list(dict.fromkeys(cells["cell"]))
    if recipe.kind == "components":
        # The paper's order where it prints these rows, else by how many are on (the plan's).
        printed = _printed_order(recipe)
        coords = {cell: _coords(cells, cell) for cell in order}
        order.sort(key=lambda c: (printed.get(_key(coords[c]), len(printed)), _on(coords[c])))
    baseline = _baseline(recipe, cells, order)
    rows: list[TableRow] = []
    differences: dict[str, list[float | None]] = {metric: [] for metric in recipe.metrics}
    for cell in order:
        mine = cells[cells["cell"] == cell]
        coords_of = _coords(cells, cell)
        measured = {}
        for metric in recipe.metrics:
            values = by_seed(mine, metric)
            base = by_seed(cells[cells["cell"] == baseline], metric)
            other = cell != baseline
            p = stats.permutation_p(list(stats.pairs(values, base))) if other else None
            differences[metric].append(p)
            measured[metric] = Measured(
                stats.summary(list(values.values())),
                stats.paired_difference(values, base) if other else None,
                p,
                printed=_printed(recipe, metric, cell, coords_of),
            )
        labels = (
            tuple(ON if coords_of.get(name) == "on" else OFF for name in components)
            if recipe.kind == "components"
            else (str(coords_of.get("variant", cell)),)
        )
        rows.append(
            TableRow(cell, labels, measured, run_ids(mine), len(mine), gaps(mine), cell == baseline)
        )
    rows = _finished(rows, recipe, differences)
    headers = tuple(components) if recipe.kind == "components" else ("variant",)
    title = recipe.title or recipe.study
    return TableData(
        recipe, slug(f"table_{recipe.study}"), title, headers, tuple(rows),
        tuple(_notes(frame, recipe, rows)),
    )  # fmt: skip


def _search(frame: Frame, recipe: Table, cells: pd.DataFrame) -> TableData:
    names = list(dict.fromkeys(name for coords in cells["coords"] for name in coords))
    ranked = []
    for cell, mine in cells.groupby("cell", sort=False):
        summaries = {m: stats.summary(list(by_seed(mine, m).values())) for m in recipe.metrics}
        first = summaries[recipe.metrics[0]]
        if first is not None:
            ranked.append((-first.mean, int(mine["idx"].iloc[0]), str(cell), mine, summaries))
    ranked.sort(key=lambda entry: entry[:2])
    rows = []
    for _, _, cell, mine, summaries in ranked[: recipe.top]:
        coords = mine["coords"].iloc[0]
        rows.append(
            TableRow(
                cell, (cell, *(level(coords.get(name, "")) for name in names)),
                {metric: Measured(found) for metric, found in summaries.items()},
                run_ids(mine), len(mine), gaps(mine),
            )
        )  # fmt: skip
    total = cells["cell"].nunique()
    by = metric_label(recipe.metrics[0])
    notes = [f"The best {len(rows)} of {total} configurations tried, by {by}."]
    lost = cells[cells["status"] != "done"]
    if len(lost):
        counts = ", ".join(f"{n} {status}" for status, n in lost["status"].value_counts().items())
        notes.append(f"Without a result: {counts}.")
    notes.append(protocol_note(frame))
    return TableData(
        recipe, slug(f"table_{recipe.study}"), recipe.title or recipe.study, ("trial", *names),
        tuple(rows), tuple(notes),
    )  # fmt: skip


def by_seed(cells: pd.DataFrame, metric: str) -> dict[int, float]:
    """{seed: value} of the finished trials of one cell; none for a metric that no run has."""
    if metric not in cells.columns:
        return {}
    found = cells[["seed", metric]].dropna()
    return {
        int(seed): float(value) for seed, value in zip(found["seed"], found[metric], strict=True)
    }


def run_ids(cells: pd.DataFrame) -> tuple[str, ...]:
    return tuple(run for run in cells["run_id"] if run)


def gaps(cells: pd.DataFrame) -> tuple[str, ...]:
    """One line for each seed that has no result."""
    lost = cells[cells["status"] != "done"]
    return tuple(
        f"{row['cell']}, seed {row['seed']}: {row['status']}"
        + (f" ({row['reason']})" if row["reason"] else "")
        for row in lost.to_dict("records")
    )


def protocol(frame: Frame) -> str:
    """`test-selected` if any trial selected its epoch on test, else `validation-selected`."""
    found = {tags.get("ablate.protocol") for tags in frame.trials["tags"]}
    return "test-selected" if "paper" in found else "validation-selected"


def protocol_note(frame: Frame) -> str:
    if protocol(frame) == "test-selected":
        return "Measured: test-selected (epoch and settings picked on the test classes)."
    return "Measured: validation-selected (epoch and settings picked on validation classes)."


def _coords(cells: pd.DataFrame, cell: str) -> dict[str, Any]:
    found: dict[str, Any] = cells[cells["cell"] == cell]["coords"].iloc[0]
    return {key: named(value) for key, value in found.items()}


def _key(coords: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in coords.items()))


def _on(coords: Mapping[str, Any]) -> int:
    return sum(value == "on" for value in coords.values())


def _printed_order(recipe: Table) -> dict[tuple[tuple[str, str], ...], int]:
    if recipe.published is None:
        return {}
    rows = published.table(recipe.published.table).rows
    return {_key(row.coords): i for i, row in enumerate(rows) if row.coords}


def _baseline(recipe: Table, cells: pd.DataFrame, order: list[str]) -> str:
    wanted = recipe.baseline
    for cell in order:
        coords = _coords(cells, cell)
        if isinstance(wanted, dict):
            if all(str(coords.get(key)) == str(value) for key, value in wanted.items()):
                return cell
        elif wanted is not None:
            if wanted in (cell, coords.get("variant")):
                return cell
        elif recipe.kind == "compare" or _on(coords) == 0:
            return cell
    if not order:
        return ""
    place = f"report: baseline {wanted!r} of the table on {recipe.study}"
    raise ReportError(f"{place} is no cell; the cells are {', '.join(order)}")


def _printed(
    recipe: Table, metric: str, cell: str, coords: Mapping[str, Any]
) -> published.PrintedValue | None:
    column = recipe.published_column(metric)
    if recipe.published is None or column is None:
        return None
    table = published.table(recipe.published.table)
    name = recipe.published.rows.get(cell) or recipe.published.rows.get(str(coords.get("variant")))
    row = table.row(name) if name else table.row_at(coords)
    return None if row is None else table.value(row, column)


def _finished(
    rows: list[TableRow], recipe: Table, p_values: Mapping[str, list[float | None]]
) -> list[TableRow]:
    """Rows with corrected p and the best mean of each metric marked."""
    measured: list[dict[str, Measured]] = [dict(row.measured) for row in rows]
    for metric in recipe.metrics:
        corrected = stats.holm(p_values[metric])
        means = [found[metric].summary for found in measured]
        top = max((m.mean for m in means if m), default=None)
        for found, p in zip(measured, corrected, strict=True):
            mine = found[metric].summary
            best = mine is not None and mine.mean == top and len(rows) > 1
            found[metric] = replace(found[metric], p_corrected=p, best=best)
    return [replace(row, measured=found) for row, found in zip(rows, measured, strict=True)]


def _notes(frame: Frame, recipe: Table, rows: list[TableRow]) -> list[str]:
    notes = [protocol_note(frame)]
    pairs = [m.difference.n for row in rows for m in row.measured.values() if m.difference]
    if pairs and max(pairs) > 1:
        least = 2 / 2 ** max(pairs)
        notes.append(
            "Δ: mean difference to the baseline row, paired by seed, with its 95 % paired-t "
            f"interval. p: two-sided sign-flip permutation test, Holm-corrected over "
            f"{len(rows) - 1} comparison(s); {max(pairs)} pairs cannot reach less than "
            f"{least:.2g} before correction."
        )
    elif pairs:
        notes.append("Δ: difference to the baseline row; one seed gives no interval.")
    if recipe.published is not None:
        table = published.table(recipe.published.table)
        columns = ", ".join(
            sorted({c for m in recipe.metrics if (c := recipe.published_column(m)) is not None})
        )
        notes.append(
            f"Published: {table.source} of “{table.paper}”, {columns}, as printed, "
            f"{table.protocol}; another data set and backbone than measured unless they agree."
        )
        for row in rows:
            for found in row.measured.values():
                if found.printed is not None and found.printed.slip:
                    value = found.printed.value
                    notes.append(f"Published {value:g} is marked: {found.printed.slip}.")
    notes += [f"Without a result: {gap}." for row in rows for gap in row.gaps]
    return notes
