"""Read a study's cells for tables and figures: values by seed, levels, trials of a search."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Literal

from reports.frame import GIVEN_UP, DataFrame, Frame
from reports.recipe import Table, to_level_name
from reports.stats.blocks import compute_look_level
from reports.stats.describe import Summary, summarize
from reports.stats.wider_claims import ClassValues, average_records, average_searches
from reports.tables.labels import format_confidence, format_level
from trainables.words.metrics import (
    SHARP,
    choose_smallest_effect,
    display_scale,
    format_metric_label,
    is_lower_better,
)

Cells = list[tuple[dict[str, str], dict[int, float]]]  # levels by factor, values by seed
Levels = dict[str, list[str]]  # factor → its levels, low first
NEUTRAL = "neutral"  # coordinate of cells with the method off, and of the rows that leave them out
NEUTRAL_NOTE = "neutral: the method switched off, at the best rates of its baseline."
ENSEMBLE = "ensemble/"  # how metrics of folds' embeddings side by side start
EMPTY = "nothing finished"
MOST_IMAGES = 10**6  # of a split
LEAST_SHARES = 10  # distinct values from which the number of images is read


def group_by_cell(cells: DataFrame, metric: str) -> dict[str, dict[int, float]]:
    """Return cell → {seed: finite value of the metric} of finished trials, in the rows' order.

    With folds, a seed's value is the mean over folds, the "separated" result of the reality check
    (Musgrave et al. 2020); seeds that lack a fold are left out. A metric `ensemble/…`, of the
    folds' embeddings side by side (the "concatenated" result), is recorded at the first fold. With
    class splits, the keys are splits instead of seeds, and a value is the mean over the seeds that
    did not fail. With several searches, a value is the mean over them; seeds and splits that lack
    one are left out.
    """
    values: dict[str, dict[int, float]] = {str(cell): {} for cell in cells["cell"]}
    if metric not in cells.columns:
        return values
    if searches := group_by_search(cells, metric):
        return values | average_searches(searches)
    if metric.startswith(ENSEMBLE):
        cells = cells[cells["fold"] == 0].assign(fold=None)
    keys = ["cell", find_unit(cells)]
    results = cells.set_index(keys)[metric]
    if has_splits(cells):
        cells = cells[~find_failures(cells) | cells[metric].notna()]
    if has_splits(cells) or cells["fold"].notna().any():
        groups = cells.groupby(keys, sort=False)[metric]
        results = groups.agg(lambda group: group.mean(skipna=False))  # NaN if one is missing
    for (cell, key), value in results.items():
        if value is not None and math.isfinite(value):
            values[str(cell)][int(key)] = float(value)
    return values


def find_failures(cells: DataFrame) -> Any:
    """Return a column that marks runs which failed, or which the machine ended at each attempt."""
    is_given_up = (cells["status"] == "interrupted") & cells["reason"].str.contains(
        GIVEN_UP, na=False
    )
    return (cells["status"] == "failed") | is_given_up


def count_as_worst(
    cells: DataFrame, metric: str, sign: int, against: Mapping[str, str] = MappingProxyType({})
) -> DataFrame:
    """Return cells whose failed runs have the worst value of their split and baseline.

    Args:
        sign: 1 if higher values are better (`find_sign`).
        against: cell → its baseline; cells without one are compared among themselves.
    """
    keys = [cells["cell"].map(lambda cell: against.get(cell, "")), cells["split"]]
    worst = cells.groupby(keys, dropna=False)[metric].transform("min" if sign > 0 else "max")
    return cells.assign(**{metric: cells[metric].where(~find_failures(cells), worst)})


def describe_failures(failed: int, runs: int) -> str:
    """Write `2 of 10 runs failed`; empty if none did."""
    return f"{failed} of {runs} runs failed" if failed else ""


def group_by_search(cells: DataFrame, metric: str) -> list[dict[str, dict[int, float]]]:
    """Return `group_by_cell` of each search; empty for a study without several searches."""
    if (count := count_searches(cells)) == 1:
        return []
    single = cells.drop(columns=["search", "searches"])
    return [group_by_cell(single[cells["search"] == k + 1], metric) for k in range(count)]


def count_searches(cells: DataFrame) -> int:
    """Return the number of searches over which a study's values are means; 1 without `searches`."""
    has_several = "searches" in cells.columns and cells["searches"].notna().any()
    return int(cells["searches"].max()) if has_several else 1


def find_sign(frame: Frame, study: str, metric: str) -> int:
    """Return 1 if higher values of a metric are better in a study, −1 if lower values are.

    The study's `objectives` give the direction, on every split; else it is the metric's own.
    """
    name = metric.rpartition("/")[2]
    for objective in frame.get_declared_study(study).get("objectives") or ():
        if objective["metric"].rpartition("/")[2] == name:
            return -1 if objective.get("direction") == "minimize" else 1
    return -1 if is_lower_better(metric) else 1


def describe_criterion(frame: Frame, study: str, metric: str) -> str:
    """Name the metric that orders rows, with its direction if the study's objectives reverse it."""
    label, sign = format_metric_label(metric), find_sign(frame, study, metric)
    if (sign < 0) == is_lower_better(metric):  # the label shows it
        return label
    return f"{label} ({'lower' if sign < 0 else 'higher'} is better)"


def find_smallest(frame: Frame, metric: str) -> float:
    """Return δ on the scale of the runs; 0 if the metric has none."""
    return choose_smallest_effect(frame.recipe.smallest, metric) / display_scale(metric)


def find_resolution(frame: Frame, cells: DataFrame, metric: str) -> float:
    """Return the smaller of 1/N and δ/10 for a mean over N images; 0 if N is unknown or above 10⁶.

    Values closer than that count as equal. 1/N alone would be above δ for few images. Recall@k and
    accuracy are a count of images over N, so N is the least common denominator of their values. Ten
    counts share a factor of N in at most about one of 1,000 cases; from fewer, N is not read.
    """
    split, _, last = metric.rpartition("/")
    prefixes = (f"{split}/recall_at_", f"{split}/top_1_accuracy", f"{split}/top_5_accuracy")
    names = [name for name in cells.columns if str(name).startswith(prefixes)]
    shares = {float(value) for name in names for value in cells[name].dropna()} - {0.0, 1.0}
    is_mean = last in SHARP or metric.startswith(prefixes)
    if not is_mean or cells["fold"].notna().any() or len(shares) < LEAST_SHARES:
        return 0.0  # with folds, a value is a mean over them
    fractions = {share: Fraction(share).limit_denominator(MOST_IMAGES) for share in shares}
    images = math.lcm(*(fraction.denominator for fraction in fractions.values()))
    is_read = all(abs(fraction - share) <= 1e-12 for share, fraction in fractions.items())
    is_read = is_read and 1 < images <= MOST_IMAGES
    return min(1 / images, find_smallest(frame, metric) / 10) if is_read else 0.0


def find_level(frame: Frame, study: str, later: int = 0) -> float:
    """Return the level of the intervals of a study's comparisons, by the number of the look.

    later: the number of looks after this one, for the level of a look to come.
    """
    return compute_look_level(frame.count_looks(study) + later, frame.recipe.looks or 1)


def describe_look(frame: Frame, study: str) -> str:
    """Write `look 2 of 3 at these rows: level 97.5 %`; empty for the only look."""
    look, planned = frame.count_looks(study), frame.recipe.looks or 1
    which = f"look {look} at these rows, of which {planned} planned"
    if look <= planned:
        which = f"look {look} of {planned} at these rows"
    level = format_confidence(find_level(frame, study))
    return f"{which}: level {level}" if max(look, planned) > 1 else ""


def count_classes(frame: Frame, cells: DataFrame, metrics: Iterable[str]) -> dict[str, str]:
    """Return metric → among how many classes each trial measures it: `20`, or `19 to 20`.

    Retrieval is easier among fewer classes. Trials of older versions did not record the number, and
    metrics without it are left out.
    """
    tags = frame.trials["tags"][frame.trials["trial_id"].isin(cells["trial_id"])]
    texts = {}
    for metric in metrics:
        tag = f"ablate.{metric.partition('/')[0]}_classes"
        if counts := {int(each[tag]) for each in tags if each.get(tag, "").isdecimal()}:
            texts[metric] = " to ".join(f"{n:,}" for n in sorted({min(counts), max(counts)}))
    return texts


def collect_class_values(
    frame: Frame, cells: DataFrame, metric: str
) -> dict[str, dict[int, ClassValues]]:
    """Return cell → seed → values by class, means over folds and searches.

    A seed is left out if one of its trials has no values, or values of other classes.
    """
    split, _, name = metric.rpartition("/")
    values: dict[str, dict[int, ClassValues]] = {}
    if frame.read_classes is None:
        return values
    for (cell, seed), group in cells.groupby(["cell", "seed"], sort=False):
        records = [frame.read_classes(trial_id, split) for trial_id in group["trial_id"]]
        if (of_seed := average_records(records, name)) is not None:
            values.setdefault(str(cell), {})[int(seed)] = of_seed
    return values


def has_splits(cells: DataFrame) -> bool:
    """Return whether a study's cells are compared over class splits."""
    return "split" in cells.columns and bool(cells["split"].notna().any())


def find_unit(cells: DataFrame) -> Literal["seed", "split"]:
    """Return what n counts in a study's cells: class splits if it has them, else seeds."""
    return "split" if has_splits(cells) else "seed"


def group_by_seed(cells: DataFrame, metric: str) -> dict[int, float]:
    """Return {seed: mean over the cells} of the seeds (or splits) at which all have a value."""
    each = [*group_by_cell(cells, metric).values()] or [{}]
    seeds = [seed for seed in each[0] if all(seed in values for values in each)]
    return {seed: math.fsum(values[seed] for values in each) / len(each) for seed in seeds}


def summarize_cells(cells: DataFrame, metric: str) -> dict[str, Summary]:
    """Return cell → summary over its seeds, for cells with a result."""
    values = group_by_cell(cells, metric)
    summaries = {cell: summarize([*by_seed.values()]) for cell, by_seed in values.items()}
    return {cell: summary for cell, summary in summaries.items() if summary}


def complete_coordinates(frame: Frame, cells: DataFrame) -> list[dict[str, Any]]:
    """Return factor → level for each row, with the levels that a cell does not name.

    A cell of a one-factor study names only the factor that differs from the centre, the study's
    cell without coordinates. The other levels are read from the parameters of the centre's runs;
    without runs they are called "centre".
    """
    is_centre = [not coords for coords in cells["coords"]]
    if not any(is_centre):
        return list(cells["coords"])
    centre: dict[str, Any] = {name: "centre" for coords in cells["coords"] for name in coords}
    trials = frame.trials[frame.trials["trial_id"].isin(cells["trial_id"][is_centre])]
    for params in trials["params"]:
        centre |= {name: params[name] for name in centre if name in params}
    return [{**centre, **coords} for coords in cells["coords"]]


def collect_levels(frame: Frame, cells: DataFrame) -> Levels:
    """Return factor → its levels as text: off before on, numbers ascending, else as listed."""
    values: dict[str, dict[str, Any]] = {}  # factor → level as text → level
    for coords in complete_coordinates(frame, cells):
        for name, value in coords.items():
            level = to_level_name(value)
            values.setdefault(name, {}).setdefault(format_level(level), level)
    levels: Levels = {}
    for name, by_text in values.items():
        levels[name] = list(by_text)
        if set(by_text) == {"on", "off"}:
            levels[name] = ["off", "on"]
        elif all(isinstance(value, int | float) for value in by_text.values()):
            levels[name].sort(key=lambda text: float(by_text[text]))
    return levels


def collect_factor_cells(frame: Frame, cells: DataFrame, metric: str) -> Cells:
    """Return each combination of levels once, as (factor → level, seed → value).

    Cells with equal levels are the same trials, so that merging their values changes no value.
    """
    coords_of = dict(zip(map(str, cells["cell"]), complete_coordinates(frame, cells), strict=True))
    values: dict[tuple[tuple[str, str], ...], dict[int, float]] = {}
    for cell, by_seed in group_by_cell(cells, metric).items():
        coords = coords_of[cell]
        levels = ((name, format_level(to_level_name(value))) for name, value in coords.items())
        values.setdefault(tuple(sorted(levels)), {}).update(by_seed)
    return [(dict(levels), by_seed) for levels, by_seed in values.items()]


@dataclass(frozen=True)
class SearchTrial:
    """One trial of a search.

    number: from 1, in the order of proposal. result: summary over its seeds.
    """

    number: int
    cell: str
    coords: Mapping[str, Any]
    result: Summary


@dataclass(frozen=True)
class Trials:
    """The trials of a search.

    Attributes:
        trials: the finished ones.
        lost: numbers of those without a result.
        neutral: result of the neutral cell, which is no proposal; None without it.
    """

    trials: tuple[SearchTrial, ...]
    lost: tuple[int, ...]
    neutral: Summary | None

    def find_best(self, sign: int) -> SearchTrial | None:
        """Return the first trial with the best value; sign: see `find_sign`."""
        return max(self.trials, key=lambda trial: sign * trial.result.mean, default=None)

    def compute_best_so_far(self, sign: int) -> list[float]:
        """Return the best mean up to each finished trial; sign: see `find_sign`."""
        better = min if sign < 0 else max
        return list(accumulate((trial.result.mean for trial in self.trials), better))


def collect_trials(cells: DataFrame, metric: str) -> Trials:
    """Return a search's finished trials, the numbers of lost ones, and the neutral cell's result.

    The neutral cell has the method switched off. It is no trial, as no sampler proposed it.
    """
    finished, lost, neutral = list[SearchTrial](), list[int](), None
    cells = cells.sort_values("idx", kind="stable")
    coords_of = dict(zip(map(str, cells["cell"]), cells["coords"], strict=True))
    for cell, values in group_by_cell(cells, metric).items():
        result, coords = summarize([*values.values()]), coords_of[cell]
        number = len(finished) + len(lost) + 1
        if NEUTRAL in coords or cell == NEUTRAL:
            neutral = result
        elif result is None:
            lost.append(number)
        else:
            finished.append(SearchTrial(number, cell, coords, result))
    return Trials(tuple(finished), tuple(lost), neutral)


def run_ids(cells: DataFrame) -> tuple[str, ...]:
    """Return the runs of these cells."""
    return tuple(run for run in cells["run_id"] if run)


def list_missing_seeds(cells: DataFrame) -> tuple[str, ...]:
    """Return a line for each seed without a result."""
    lines = []
    for row in cells[cells["status"] != "done"].to_dict("records"):
        has_fold = row["fold"] is not None and not math.isnan(row["fold"])
        fold = f", fold {row['fold']:g}" if has_fold else ""
        search = f", search {row['search']}" if row.get("searches") else ""
        reason = f" ({row['reason']})" if row["reason"] else ""
        lines.append(f"{row['cell']}, seed {row['seed']}{fold}{search}: {row['status']}{reason}")
    return tuple(lines)


def describe_metric(frame: Frame, metric: str) -> str:
    """Name a metric with the protocol by which it was measured, for a caption."""
    return f"{format_metric_label(metric)}, {find_protocol(frame)}"


def find_protocol(frame: Frame) -> str:
    """Return `validation-selected`, `test-selected` if any trial is that, or `nothing finished`."""
    if not (frame.trials["status"] == "done").any():
        return EMPTY
    # "paper" if the epoch is selected on the test classes, as papers do
    protocols = {tags.get("ablate.protocol") for tags in frame.trials["tags"]}
    return "test-selected" if "paper" in protocols else "validation-selected"


def find_split_unit(frame: Frame) -> str:
    """Return what is split: "images" in classification, else "classes"."""
    units = {params.get("data.split.by") for params in frame.trials["params"]}
    return "images" if "images" in units else "classes"


def explain_measurement(frame: Frame, recipe: Table, cells: DataFrame) -> list[str]:
    """Explain in notes how a table's numbers were measured: by which protocol, seeds and folds."""
    notes = [explain_protocol(frame, recipe.metrics)]
    if frame.get_declared_study(recipe.study).get("race"):
        notes.append(
            "Raced: cells that were clearly worse got fewer seeds, so their means are biased down. "
            "They have no verdict and are no comparisons."
        )
    return notes + explain_folds(cells, recipe.metrics)


def explain_protocol(frame: Frame, metrics: Sequence[str]) -> str:
    """Explain in a note which classes select epoch and settings, and what training metrics mean."""
    protocol, unit = find_protocol(frame), find_split_unit(frame)
    if protocol == EMPTY:
        return "Measured: nothing yet, no trial has finished."
    if frame.document.get("is_foreign"):
        return "Measured: elsewhere. How epochs and settings were picked is not known."
    note = f"Measured: {protocol} (epoch and settings picked on the test {unit})."
    if protocol == "validation-selected":
        last = {params.get("selection.keep") for params in frame.trials["params"]} == {"last"}
        picked = "the last epoch counts; settings" if last else "epoch and settings"
        note = f"Measured: {protocol} ({picked} picked on validation {unit}; "
        note += f"test {unit} are read once the trial is finished)."
    if any(metric.startswith("train/") for metric in metrics):
        note += (
            f" Training: the {unit} that were trained on, read once the trial is finished, without "
            f"augmentation; this tells how well these {unit} are fitted, nothing about new {unit}."
        )
    return note


def explain_folds(cells: DataFrame, metrics: Sequence[str]) -> list[str]:
    """Explain in notes what folds or splits mean for these metrics."""
    searches = []
    if (count := count_searches(cells)) > 1:
        searches = [
            f"Each value is also the mean over {count} searches, each with other search seeds. "
            "Their scatter is in the intervals of differences to a baseline row, and in no others."
        ]
    if has_splits(cells):
        count, seeds = cells["split"].nunique(), cells.groupby("split")["seed"].nunique().max()
        return [
            f"Each value is the mean over {seeds} seed(s) on one of {count} class splits, whose "
            "test classes are disjoint; n counts splits. Differences hold for further classes of "
            "this data set. Images are searched among the test classes of their split alone, since "
            "the other test classes train; among fewer classes, levels and differences are larger.",
            *searches,
        ]
    count, notes = cells["fold"].nunique(), searches
    if count and not all(metric.startswith(ENSEMBLE) for metric in metrics):
        notes.append(
            f"Each value is the mean over {count} class folds of one seed (aggregate, or "
            "“separated”); n counts seeds."
        )
    if count and any(metric.startswith(ENSEMBLE) for metric in metrics):
        notes.append(
            f"Ensemble of folds: the test classes by the embeddings of the {count} folds' networks "
            f"side by side (“concatenated”), {count} times as wide; one value per seed."
        )
    return notes
