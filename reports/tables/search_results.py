"""List the best configurations of a search."""

from collections import Counter
from itertools import islice

from reports.frame import DataFrame, Frame
from reports.recipe import Table
from reports.stats.describe import half_width, summarize
from reports.tables.cells import (
    NEUTRAL,
    NEUTRAL_NOTE,
    count_classes,
    describe_criterion,
    explain_measurement,
    find_sign,
    group_by_cell,
    list_missing_seeds,
    run_ids,
    summarize_cells,
)
from reports.tables.labels import format_level, to_slug
from reports.tables.model import MeasuredMetric, TableData, TableRow

MOST_BROKEN = 3  # cells beyond the limits of a search that a note names


def searched(frame: Frame, recipe: Table, cells: DataFrame) -> TableData:
    """Return a row for each of a search's best `top` configurations by the table's first metric."""
    # searched parameters, in order
    names = list(dict.fromkeys(n for coords in cells["coords"] for n in coords if n != NEUTRAL))
    values = {metric: group_by_cell(cells, metric) for metric in recipe.metrics}
    index = dict(zip(map(str, cells["cell"]), cells["idx"], strict=True))
    results = summarize_cells(cells, recipe.metrics[0])
    sign = find_sign(frame, recipe.study, recipe.metrics[0])
    ranked = sorted(results, key=lambda cell: (-sign * results[cell].mean, index[cell], cell))
    rows = []
    for cell in ranked[: recipe.top]:
        group = cells[cells["cell"] == cell]
        measured = {}
        for metric in recipe.metrics:
            scores = list(values[metric][cell].values())
            measured[metric] = MeasuredMetric(summarize(scores), half_width(scores))
        coords, planned = group["coords"].iloc[0], group["seed"].nunique()
        labels = (cell, *(format_level(coords.get(name, "")) for name in names))
        gaps = list_missing_seeds(group)
        rows.append(TableRow(cell, labels, measured, run_ids(group), planned, gaps))
    total = cells["cell"].nunique()
    by = describe_criterion(frame, recipe.study, recipe.metrics[0])
    notes = [f"The best {len(rows)} of {total} configurations tried, by {by}."]
    if (cells["cell"] == NEUTRAL).any():
        notes.append(NEUTRAL_NOTE)
    counts = Counter(status for status in cells["status"] if status != "done")
    if counts:
        by_status = ", ".join(f"{n} {status}" for status, n in counts.most_common())
        notes.append(f"Without a result: {by_status}.")
    notes += explain_limits(frame, cells)
    notes += explain_measurement(frame, recipe, cells)
    return TableData(
        recipe,
        key=to_slug(f"table_{recipe.study}"),
        title=recipe.title or recipe.study,
        headers=("trial", *names),
        rows=tuple(rows),
        notes=tuple(notes),
        classes=count_classes(frame, cells, recipe.metrics),
    )


def explain_limits(frame: Frame, cells: DataFrame) -> list[str]:
    """Say in notes which proposals of a search were beyond its limits, and which limits these are.

    Some were not trained, others needed too much.
    """
    broken = dict(cells.loc[cells["status"] == "infeasible", ["cell", "reason"]].values)
    texts = [f"{cell} ({reason})" for cell, reason in islice(broken.items(), MOST_BROKEN)]
    more = f" and {len(broken) - len(texts)} others" if len(broken) > len(texts) else ""
    notes = [f"Trained, and beyond the limits: {', '.join(texts)}{more}."] if texts else []
    study = str(cells["study"].iloc[0])
    if counts := dict((frame.document.get("infeasible") or {}).get(study) or {}):
        number = counts.pop("proposals")
        reasons = ", ".join(f"{name}: {n}" for name, n in sorted(counts.items()))
        notes.append(f"Beyond the limits, and so not trained: {number} proposals ({reasons}).")
    return notes
