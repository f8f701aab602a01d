"""Tables of a search: its best trials, the importances of its parameters, its promoted cells."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from reports.frame import DataFrame, Frame
from reports.recipe import Table
from reports.stats.describe import half_width, spearman, summarize, t_interval
from reports.stats.importance import LEAST, compute_importances
from reports.tables import labels
from reports.tables.cells import (
    NEUTRAL,
    NEUTRAL_NOTE,
    collect_trials,
    count_classes,
    describe_criterion,
    explain_measurement,
    explain_protocol,
    find_sign,
    group_by_cell,
    group_by_seed,
    list_missing_seeds,
    run_ids,
    summarize_cells,
)
from reports.tables.labels import format_coordinates, format_level, to_slug
from reports.tables.model import Field, MeasuredMetric, Sheet, TableData, TableRow
from trainables.words.errors import ReportError
from trainables.words.metrics import display_scale, format_metric_label

MOST_BROKEN = 3  # cells beyond the limits of a search that a note names


def list_best_trials(frame: Frame, recipe: Table, cells: DataFrame) -> TableData:
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


IMPORTANCE_COLUMNS = (
    *("parameter", "searched", "importance", "evaluator", "n", "conditional", "metric"),
)
MEANINGS = {
    "ped_anova": "how differently a parameter is spread among the best trials and among all",
    "fanova": "the variance of a forest's prediction that a parameter explains alone",
}


def estimate_importances(frame: Frame, recipe: Table, cells: DataFrame) -> Sheet:
    """Return a row per parameter of a search with its share of the importance."""
    metric = recipe.metrics[0]
    space = find_search_space(frame, recipe.study)
    trials = collect_trials(cells, metric).trials
    sign = find_sign(frame, recipe.study, metric)
    points = [trial.coords for trial in trials]
    values = [sign * trial.result.mean for trial in trials]
    importances = compute_importances(points, values, space, evaluator=recipe.evaluator)
    notes = [explain_protocol(frame, recipe.metrics)]
    rows: list[tuple[Field, ...]] = []
    numbers: list[tuple[object, ...]] = []
    if importances is None:
        notes.append(
            f"Importances: none, {len(trials)} trials are finished and at least {LEAST} are needed."
        )
    else:
        names = format_coordinates(list(importances.shares))
        for name, (path, share) in zip(names, importances.shares.items(), strict=True):
            axis = _format_axis(space[path])
            rows.append((Field(name), Field(axis), Field(f"{100 * share:.1f}")))
            conditional = path in importances.conditional
            source = (importances.evaluator, importances.n)
            numbers.append((path, axis, share, *source, conditional, metric))
        label = format_metric_label(metric)
        meaning = MEANINGS[recipe.evaluator]
        notes.append(
            f"Importance for {label}: {importances.evaluator}; {meaning}, as a share of the sum."
        )
        if importances.conditional:
            how = "left out" if importances.dropped else "judged where active"
            notes.append(f"Conditional, {how}: {', '.join(importances.conditional)}.")
        notes += [f"Caution: {text}." for text in importances.warnings]
    return Sheet(
        recipe,
        key=to_slug(f"importance_{recipe.study}"),
        title=recipe.title or f"{recipe.study}: importances",
        headers=("parameter", "searched", "importance (%)"),
        labels=2,
        rows=tuple(rows),
        columns=IMPORTANCE_COLUMNS,
        numbers=tuple(numbers),
        notes=tuple(notes),
    )


def find_search_space(frame: Frame, study: str) -> Mapping[str, Mapping[str, Any]]:
    """Return parameter → its choices or its range, for a search; ReportError for other studies."""
    space: Mapping[str, Mapping[str, Any]] | None = frame.get_declared_study(study).get("space")
    if frame.get_design(study) != "search" or space is None:
        raise ReportError(
            f"report: {study} is a {frame.get_design(study)} study, but importances need a search "
            "study. Name a search study."
        )
    return space


def _format_axis(axis: Mapping[str, Any]) -> str:
    if axis.get("choice") is not None:
        return ", ".join(format_level(choice) for choice in axis["choice"])
    log = ", log" if axis.get("log") else ""
    return f"{format_level(axis['low'])} … {format_level(axis['high'])}{log}"


RANK, SOURCE = "rank", "source"  # coordinates of a promoted cell
PROMOTED_COLUMNS = ("metric", "mean", "sd", "low", "high", "n")


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


def list_promoted_cells(frame: Frame, recipe: Table, cells: DataFrame) -> Sheet:
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
    columns = [f"source_{column}" for column in PROMOTED_COLUMNS]
    for i in range(len(recipe.metrics)):
        columns += [column if i == 0 else f"{column}_{i + 1}" for column in PROMOTED_COLUMNS]
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
