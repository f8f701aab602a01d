"""Compare promoted cells with what they were in the study that they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.errors import ReportError
from reports.frame import Frame
from reports.recipe import Table
from reports.stats.describe import summarize, t_interval
from reports.stats.ranks import spearman
from reports.tables.cells import (
    NEUTRAL,
    explain_folds,
    explain_protocol,
    explain_race,
    group_by_seed,
    list_missing_seeds,
    run_ids,
)
from reports.tables.labels import (
    display_scale,
    format_coordinates,
    format_level,
    format_metric_label,
    format_number,
    is_lower_better,
    to_slug,
)
from reports.tables.model import Field, Sheet

if TYPE_CHECKING:
    import pandas as pd

RANK, SOURCE = "rank", "source"  # coordinates of a promoted cell
COLUMNS = ("metric", "mean", "sd", "low", "high", "n")


@dataclass(frozen=True)
class Promotion:
    """The source of promoted cells.

    Attributes:
        source, cells: the source study and its cells.
        by: the metric of their ranks, and whether higher is better.
    """

    source: str
    cells: pd.DataFrame
    by: str
    most: bool

    def find_source_values(self, cell: str) -> dict[int, float]:
        """Return the values by seed of a cell of the source."""
        return group_by_seed(self.cells[self.cells["cell"] == cell], self.by)


def find_promotion(frame: Frame, study: str, section: str) -> Promotion:
    """Return the source of a study's promoted cells.

    Raises:
        ReportError: the study promotes nothing.
    """
    declared = frame.get_declared_study(study)
    if frame.get_design(study) != "promote":
        raise ReportError(
            f"{section}: {study} is a {frame.get_design(study)} study, but promotions need a "
            "promote study. Name one."
        )
    source = str(declared["of"])
    metrics = {
        str(o["metric"]): o for o in frame.get_declared_study(source).get("objectives") or []
    }
    by = str(declared.get("by") or frame.get_objective(source)[0])
    most = metrics.get(by, {}).get("direction") != "minimize"
    is_listed = source in frame.study_order
    return Promotion(
        source, frame.select_study(source) if is_listed else frame.cells.iloc[:0], by, most
    )


def rank_signs(promotion: Promotion, metric: str) -> tuple[int, int]:
    """Return the signs with which higher is better, for values before and after."""
    return 1 if promotion.most else -1, -1 if is_lower_better(metric) else 1


def promoted(frame: Frame, recipe: Table, cells: pd.DataFrame) -> Sheet:
    """Return one row per cell in the order of their ranks: rank and cell in the source study, the
    values that were varied there, what it was ranked by, then each metric of the recipe; means over
    seeds with 95 % Student intervals. A note has Spearman's rank correlation of the two fidelities.

    Raises:
        ReportError: the study promotes nothing.

    Example:
        >>> Table(kind="promoted", study="terms", metrics=("test/map_at_r",)).digits
        2
    """
    promotion = find_promotion(frame, recipe.study, "report")
    by, source = promotion.by, promotion.source
    every = dict.fromkeys(name for coords in cells["coords"] for name in coords)
    names = [name for name in every if name not in (RANK, SOURCE, NEUTRAL)]
    rows, numbers = [], []
    pairs: list[tuple[float, float]] = []
    for cell, group in cells.groupby("cell", sort=False):
        coords: dict[str, Any] = group["coords"].iloc[0]
        was = str(coords.get(SOURCE, ""))
        sampled = [format_level(coords.get(name, "")) for name in names]
        sides = [(by, promotion.find_source_values(was), (source, was))]
        sides += [(m, group_by_seed(group, m), (recipe.study, str(cell))) for m in recipe.metrics]
        lost = "; ".join(list_missing_seeds(group))
        fields, unrounded, means = [], [], []
        for metric, values, of in sides:
            scores, factor = list(values.values()), display_scale(metric)
            result, ends = summarize(scores), t_interval(scores)
            field = Field("missing", hint=lost)
            if result is not None:  # `61.31 [60.90, 61.72]`; one seed gives no interval
                text = format_number(result.mean * factor, recipe.digits)
                if ends:
                    low, high = (format_number(end * factor, recipe.digits) for end in ends)
                    text += f" [{low}, {high}]"
                field = Field(text, measured=True, of=of)
            fields.append(field)
            means.append(result.mean if result else None)
            numbers_of = (result.mean, result.sd) if result else (None, None)
            unrounded += [metric, *numbers_of, *(ends or (None, None)), result.n if result else 0]
        if not was:
            fields[0] = Field("–", hint=f"no cell of {source}")
        planned, n = group["seed"].nunique(), len(sides[1][1])
        count = Field(str(n) if n == planned else f"{n} of {planned}", hint=lost)
        rank = str(coords.get(RANK, cell))
        rows.append((Field(rank), Field(was), *map(Field, sampled), *fields, count))
        runs = " ".join(run_ids(group))
        numbers.append((cell, coords.get(RANK), was, *sampled, *unrounded, runs))
        if means[0] is not None and means[1] is not None:
            pairs.append((means[0], means[1]))
    total = frame.cells[frame.cells["study"] == source]["cell"].nunique()
    neutral = cells["cell"] == NEUTRAL
    best = f"The best {cells[~neutral]['cell'].nunique()} of {total} cells of {source}, trained "
    best += "again."
    if neutral.any():
        best += " neutral: the method switched off, at the best rates of its baseline."
    columns = [f"source_{column}" for column in COLUMNS]
    for i in range(len(recipe.metrics)):
        columns += [column if i == 0 else f"{column}_{i + 1}" for column in COLUMNS]
    return Sheet(
        recipe,
        to_slug(f"table_{recipe.study}"),
        recipe.title or recipe.study,
        (
            *("rank", f"{source} cell", *format_coordinates(names)),
            f"{format_metric_label(by)}, {source}",
            *(f"{format_metric_label(metric)}, {recipe.study}" for metric in recipe.metrics),
            "n",
        ),
        2 + len(names),
        tuple(rows),
        ("cell", RANK, SOURCE, *names, *columns, "run_ids"),
        tuple(numbers),
        (
            best,
            _explain_agreement(recipe, promotion, pairs),
            "[…]: 95 % Student interval of the mean over seeds; none with one seed.",
            explain_protocol(frame, recipe.metrics),
            *explain_race(frame, recipe.study),
            *explain_folds(cells, recipe.metrics),
            *(f"Without a result: {gap}." for gap in list_missing_seeds(cells)),
        ),
    )


def _explain_agreement(
    recipe: Table, promotion: Promotion, pairs: list[tuple[float, float]]
) -> str:
    """Say whether both fidelities order the cells alike."""
    first, source = recipe.metrics[0], promotion.source
    before, after = rank_signs(promotion, first)
    agreement = spearman([before * a for a, _ in pairs], [after * b for _, b in pairs])
    what = (
        f"Spearman's rank correlation of {format_metric_label(promotion.by)} in {source} and "
        f"{format_metric_label(first)} in {recipe.study}"
    )
    if agreement is None:
        return f"{what}: none with fewer than 3 cells, or where all of one side are equal."
    return (
        f"{what}: ρ = {format_number(agreement.value, 2)} over {agreement.n} promoted cells, 1 if "
        f"both order them alike. Only the best of {source} are in it, which are alike there: over "
        "all its cells it may be larger."
    )
