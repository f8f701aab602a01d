"""Compare promoted cells with what they were in the study that they come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reports.frame import DataFrame, Frame
from reports.recipe import Table
from reports.stats.describe import summarize, t_interval
from reports.stats.ranks import spearman
from reports.tables import labels
from reports.tables.cells import (
    NEUTRAL,
    NEUTRAL_NOTE,
    explain_measurement,
    find_sign,
    group_by_cell,
    group_by_seed,
    list_missing_seeds,
    run_ids,
)
from reports.tables.model import Field, Sheet
from trainables.words.errors import ReportError
from trainables.words.metrics import display_scale, format_metric_label

RANK, SOURCE = "rank", "source"  # coordinates of a promoted cell
COLUMNS = ("metric", "mean", "sd", "low", "high", "n")


@dataclass(frozen=True)
class Promotion:
    """The source of promoted cells.

    Attributes:
        source: the source study. values: its cell → values by seed, of the metric `by`.
        by: the metric of the cells' ranks. maximize: whether higher is better.
        sign: of the metric after promotion, see `find_sign`.
    """

    source: str
    values: Mapping[str, Mapping[int, float]]
    by: str
    maximize: bool
    sign: int


def find_promotion(frame: Frame, study: str, metric: str, section: str) -> Promotion:
    """Return a promote study's source: its name, values and ranking metric; else ReportError."""
    declared = frame.get_declared_study(study)
    if frame.get_design(study) != "promote":
        raise ReportError(
            f"{section}: {study} is a {frame.get_design(study)} study, but promotions need a "
            "promote study. Name a promote study."
        )
    source = str(declared["of"])
    by, is_maximized = frame.get_objective(source)
    has_cells = source in frame.study_order
    values = group_by_cell(frame.select_study(source), by) if has_cells else {}
    sign = find_sign(frame, study, metric)
    return Promotion(source, values, by, is_maximized, sign)


class Move(NamedTuple):
    """A promoted cell: its cell in the source study, its means before and after, and its seeds."""

    source: str
    before: float
    after: float
    seeds: int


def list_moves(cells: DataFrame, promotion: Promotion, metric: str) -> list[Move]:
    """Return the promoted cells that have a result before and after promotion."""
    moves = []
    for _, rows in cells.groupby("cell", sort=False):
        source = str(rows["coords"].iloc[0].get(SOURCE, ""))
        before = summarize([*promotion.values.get(source, {}).values()])
        after = summarize([*group_by_seed(rows, metric).values()])
        if before is not None and after is not None:
            moves.append(Move(source, before.mean, after.mean, after.n))
    return moves


def score_moves(moves: Sequence[Move], promotion: Promotion) -> tuple[list[float], list[float]]:
    """Return the means before and after promotion, with signs with which higher is better."""
    before_sign = 1 if promotion.maximize else -1
    return [before_sign * m.before for m in moves], [promotion.sign * m.after for m in moves]


def promoted(frame: Frame, recipe: Table, cells: DataFrame) -> Sheet:
    """Return one row per promoted cell, a best cell of a source study that is trained again.

    A row has the cell's rank, name and settings in the source study, and means with 95 % Student
    intervals: of the metric that ranked the cell there, and of the metrics after promotion. A note
    has Spearman's correlation of the two rankings. The study must have the design `promote`.
    """
    promotion = find_promotion(frame, recipe.study, recipe.metrics[0], "report")
    by, source = promotion.by, promotion.source
    coordinates = dict.fromkeys(name for coords in cells["coords"] for name in coords)
    names = [name for name in coordinates if name not in (RANK, SOURCE, NEUTRAL)]
    rows, numbers = [], []  # printed fields, and unrounded numbers for CSV
    for cell, group in cells.groupby("cell", sort=False):
        coords: dict[str, Any] = group["coords"].iloc[0]
        rank, origin = coords.get(RANK), str(coords.get(SOURCE, ""))
        levels = [labels.format_level(coords.get(name, "")) for name in names]
        gaps = "; ".join(list_missing_seeds(group))
        # (metric, values by seed, cell that was run): the one before promotion, then those after
        sides: list[tuple[str, Mapping[int, float], tuple[str, str]]]
        sides = [(by, promotion.values.get(origin, {}), (source, origin))]
        sides += [(m, group_by_seed(group, m), (recipe.study, str(cell))) for m in recipe.metrics]
        fields, statistics = [], []
        for metric, values, runs_of in sides:
            summary, ends = summarize([*values.values()]), t_interval([*values.values()])
            field, mean, sd, n = Field("missing", hint=gaps), None, None, 0
            if summary is not None:
                mean, sd, n = summary.mean, summary.sd, summary.n
                text = _format_mean(mean, ends, metric, recipe.digits)
                field = Field(text, measured=True, of=runs_of)
            fields.append(field)
            statistics += [metric, mean, sd, *(ends or (None, None)), n]
        if not origin:  # the neutral cell, which was not promoted
            fields[0] = Field("–", hint=f"no cell of {source}")
        planned, n = group["seed"].nunique(), len(sides[1][1])  # seeds of the first metric
        count = Field(str(n) if n == planned else f"{n} of {planned}", hint=gaps)
        settings = (str(coords.get(RANK, cell)), origin, *levels)
        rows.append((*map(Field, settings), *fields, count))
        numbers.append((cell, rank, origin, *levels, *statistics, " ".join(run_ids(group))))
    columns = [f"source_{column}" for column in COLUMNS]
    for i in range(len(recipe.metrics)):
        columns += [column if i == 0 else f"{column}_{i + 1}" for column in COLUMNS]
    total = frame.cells[frame.cells["study"] == source]["cell"].nunique()
    is_neutral = cells["cell"] == NEUTRAL
    notes = [
        f"The best {cells[~is_neutral]['cell'].nunique()} of {total} cells of {source}, trained "
        "again." + (f" {NEUTRAL_NOTE}" if is_neutral.any() else ""),
        _explain_agreement(recipe, promotion, list_moves(cells, promotion, recipe.metrics[0])),
        "[…]: 95 % Student interval of the mean over seeds; none with one seed.",
        *explain_measurement(frame, recipe, cells),
        *(f"Without a result: {gap}." for gap in list_missing_seeds(cells)),
    ]
    return Sheet(
        recipe,
        key=labels.to_slug(f"table_{recipe.study}"),
        title=recipe.title or recipe.study,
        headers=(
            *("rank", f"{source} cell", *labels.format_coordinates(names)),
            f"{format_metric_label(by)}, {source}",
            *(f"{format_metric_label(metric)}, {recipe.study}" for metric in recipe.metrics),
            "n",
        ),
        labels=2 + len(names),
        rows=tuple(rows),
        columns=("cell", RANK, SOURCE, *names, *columns, "run_ids"),
        numbers=tuple(numbers),
        notes=tuple(notes),
    )


def _format_mean(mean: float, ends: tuple[float, float] | None, metric: str, digits: int) -> str:
    """Write `61.31 [60.90, 61.72]`; one seed gives no interval."""
    text, *bounds = (
        labels.format_number(value * display_scale(metric), digits)
        for value in (mean, *(ends or ()))
    )
    return f"{text} [{', '.join(bounds)}]" if bounds else text


def _explain_agreement(recipe: Table, promotion: Promotion, moves: list[Move]) -> str:
    """Write a note on the rank correlation of the cells' means before and after promotion."""
    metric, source = recipe.metrics[0], promotion.source
    rho = spearman(*score_moves(moves, promotion))
    before_label, after_label = map(format_metric_label, (promotion.by, metric))
    subject = (
        f"Spearman's rank correlation of {before_label} in {source} and {after_label} in "
        f"{recipe.study}"
    )
    if rho is None:
        return f"{subject}: there is none with fewer than 3 cells, or if one metric is constant."
    return (
        f"{subject}: ρ = {labels.format_number(rho, 2)} over {len(moves)} promoted cells, 1 if "
        f"both order them alike. Only the best cells of {source} count, whose values are close: "
        "over all its cells ρ may be larger."
    )
