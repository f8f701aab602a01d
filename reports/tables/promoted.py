"""Promoted cells: what each was in the study it comes from, and what it became."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.errors import ReportError
from reports.frame import Frame
from reports.recipe import Table
from reports.stats.describe import summary, t_interval
from reports.stats.ranks import spearman
from reports.tables.beside import NEUTRAL
from reports.tables.cells import by_seed, fold_notes, gaps, protocol_note, race_notes
from reports.tables.labels import (
    coordinate_names,
    level,
    lower_is_better,
    metric_label,
    number,
    scale,
    slug,
)
from reports.tables.model import Field, Sheet

RANK, SOURCE = "rank", "source"  # coordinates of a promoted cell
COLUMNS = ("metric", "mean", "sd", "low", "high", "n")


def promoted(frame: Frame, recipe: Table, cells: pd.DataFrame) -> Sheet:
    """One row a cell in the order of their ranks: rank and cell in the source study, the values
    that were varied there, what it was ranked by, then each metric of the recipe; means over seeds
    with 95 % Student intervals. A note has Spearman's rank correlation of the two fidelities.

    Raises:
        ReportError: the study promotes nothing.
    """
    spec = (frame.document.get("studies") or {}).get(recipe.study) or {}
    if frame.design(recipe.study) != "promote":
        raise ReportError(
            f"report: found {recipe.study}, a {frame.design(recipe.study)} study, in a table of "
            "promoted cells; expected a promote study"
        )
    source = str(spec["of"])
    by, most = ranked_by(frame, source, spec.get("by"))
    before = frame.study(source) if source in frame.study_order else cells.iloc[:0]
    names = list(
        dict.fromkeys(
            name
            for coords in cells["coords"]
            for name in coords
            if name not in (RANK, SOURCE, NEUTRAL)
        )
    )
    rows, numbers = [], []
    pairs: list[tuple[float, float]] = []
    for cell, mine in cells.groupby("cell", sort=False):
        coords: dict[str, Any] = mine["coords"].iloc[0]
        was = str(coords.get(SOURCE, ""))
        sampled = [level(coords.get(name, "")) for name in names]
        sides = [(by, by_seed(before[before["cell"] == was], by), (source, was))]
        sides += [(m, by_seed(mine, m), (recipe.study, str(cell))) for m in recipe.metrics]
        lost = "; ".join(gaps(mine))
        fields = [_field(metric, values, of, recipe.digits, lost) for metric, values, of in sides]
        if not was:
            fields[0] = Field("–", hint=f"no cell of {source}")
        planned, n = mine["seed"].nunique(), len(sides[1][1])
        count = Field(str(n) if n == planned else f"{n} of {planned}", hint=lost)
        rank = str(coords.get(RANK, cell))
        labels = (Field(rank), Field(was), *map(Field, sampled))
        rows.append((*labels, *fields, count))
        means = [_numbers(metric, values) for metric, values, _ in sides]
        runs = " ".join(run for run in mine["run_id"] if run)
        numbers.append(
            (
                cell,
                coords.get(RANK),
                was,
                *sampled,
                *(x for each in means for x in each),
                runs,
            )
        )
        if means[0][1] is not None and means[1][1] is not None:
            pairs.append((means[0][1], means[1][1]))
    agreement = _agreement(recipe, source, (by, most), pairs)
    return Sheet(
        recipe,
        slug(f"table_{recipe.study}"),
        recipe.title or recipe.study,
        (
            "rank",
            f"{source} cell",
            *coordinate_names(names),
            f"{metric_label(by)}, {source}",
            *(f"{metric_label(m)}, {recipe.study}" for m in recipe.metrics),
            "n",
        ),
        2 + len(names),
        tuple(rows),
        (
            "cell",
            RANK,
            SOURCE,
            *names,
            *(f"source_{column}" for column in COLUMNS),
            *(c if i == 0 else f"{c}_{i + 1}" for i in range(len(recipe.metrics)) for c in COLUMNS),
            "run_ids",
        ),
        tuple(numbers),
        _notes(frame, recipe, source, cells, agreement),
    )


def ranked_by(frame: Frame, source: str, by: str | None) -> tuple[str, bool]:
    """What the source's cells were ranked by, and whether more of it is better."""
    spec = (frame.document.get("studies") or {}).get(source) or {}
    objectives = {str(o["metric"]): o.get("direction") for o in spec.get("objectives") or []}
    default = next(iter(objectives), str(frame.document.get("objective") or "val/map_at_r"))
    metric = by or default
    return metric, objectives.get(metric) != "minimize"


def _field(
    metric: str, values: dict[int, float], of: tuple[str, str], digits: int, lost: str
) -> Field:
    """`61.31 [60.90, 61.72]`; without an interval where one seed gives none."""
    result = summary(list(values.values()))
    if result is None:
        return Field("missing", hint=lost)
    text = number(result.mean * scale(metric), digits)
    interval = t_interval(list(values.values()))
    if interval is not None:
        low, high = (number(end * scale(metric), digits) for end in interval)
        text += f" [{low}, {high}]"
    return Field(text, measured=True, of=of)


def _numbers(metric: str, values: dict[int, float]) -> tuple[Any, ...]:
    """As `COLUMNS`, on the scale of the runs."""
    result = summary(list(values.values()))
    if result is None:
        return (metric, None, None, None, None, 0)
    low, high = t_interval(list(values.values())) or (None, None)
    return (metric, result.mean, result.sd, low, high, result.n)


def _agreement(
    recipe: Table, source: str, by: tuple[str, bool], pairs: list[tuple[float, float]]
) -> str:
    """Whether both fidelities order the cells alike, each from worst to best."""
    metric, most = by
    first = recipe.metrics[0]
    signs = (1 if most else -1, -1 if lower_is_better(first) else 1)
    agreement = spearman([signs[0] * a for a, _ in pairs], [signs[1] * b for _, b in pairs])
    what = (
        f"Spearman's rank correlation of {metric_label(metric)} in {source} and "
        f"{metric_label(first)} in {recipe.study}"
    )
    if agreement is None:
        return f"{what}: none with fewer than 3 cells, or where all of one side are equal."
    return (
        f"{what}: ρ = {number(agreement.value, 2)} over {agreement.n} promoted cells, 1 if both "
        f"order them alike. Only the best of {source} are in it, which are alike there: over all "
        "its cells it may be larger."
    )


def _notes(
    frame: Frame, recipe: Table, source: str, cells: pd.DataFrame, agreement: str
) -> tuple[str, ...]:
    total = frame.cells[frame.cells["study"] == source]["cell"].nunique()
    own = cells["cell"] == NEUTRAL
    best = f"The best {cells[~own]['cell'].nunique()} of {total} cells of {source}, trained again."
    if own.any():
        best += " neutral: the method switched off, at the best rates of its baseline."
    interval = "[…]: 95 % Student interval of the mean over seeds; none with one seed."
    lost = [f"Without a result: {gap}." for gap in gaps(cells)]
    notes = [
        best,
        agreement,
        interval,
        protocol_note(frame, recipe.metrics),
        *race_notes(frame, recipe.study),
    ]
    return (*notes, *fold_notes(cells, recipe.metrics), *lost)
