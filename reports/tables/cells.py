"""Read a study's cells for tables and figures: values by seed, levels, trials of a search."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from reports.frame import Frame
from reports.recipe import to_level_name
from reports.stats.describe import Summary, summarize
from reports.tables.labels import format_level, format_metric_label, is_lower_better

if TYPE_CHECKING:
    import pandas as pd

Cells = list[tuple[dict[str, str], dict[int, float]]]  # levels by factor, values by seed
Levels = dict[str, list[str]]  # factor → its levels, low first
NEUTRAL = "neutral"  # coordinate of cells with the method off, and of the rows that leave them out
NEUTRAL_NOTE = "neutral: the method switched off, at the best rates of its baseline."
ENSEMBLE = "ensemble/"  # how metrics of folds' embeddings side by side start
TRAIN = "train/"
EMPTY = "nothing finished"
CENTRE = "centre"  # a level that a one-factor study leaves to its centre and that no run tells


def group_by_cell(cells: pd.DataFrame, metric: str) -> dict[str, dict[int, float]]:
    """Return cell → {seed: value} of finished trials, in the order of the rows.

    With folds, a seed's value is the mean over folds, the "separated" result of the reality check
    (Musgrave et al. 2020); seeds that lack a fold are left out. The ensemble's value
    (`ensemble/…`), the "concatenated" result, is recorded at the first fold. With splits, the keys
    are splits instead of seeds, and a value is the mean over seeds.
    """
    values: dict[str, dict[int, float]] = {str(cell): {} for cell in cells["cell"]}
    if metric not in cells.columns:
        return values
    if metric.startswith(ENSEMBLE):
        cells = cells[cells["fold"] == 0].assign(fold=None)
    keys, results = zip(cells["cell"], cells["seed"], strict=True), cells[metric]
    if has_splits(cells):
        groups = cells.groupby(["cell", "split"], sort=False)[metric]
        results = groups.agg(lambda group: group.mean(skipna=False))
        keys = results.index
    elif cells["fold"].notna().any():
        groups = cells.groupby(["cell", "seed"], sort=False)[metric]
        results = groups.agg(lambda group: group.mean(skipna=False))  # NaN of a seed with a gap
        keys = results.index
    for (cell, seed), value in zip(keys, results, strict=True):
        if not is_missing(value):
            values[str(cell)][int(seed)] = float(value)
    return values


def has_splits(cells: pd.DataFrame) -> bool:
    """Return whether a study's cells are compared over class splits."""
    return "split" in cells.columns and bool(cells["split"].notna().any())


def group_by_seed(cells: pd.DataFrame, metric: str) -> dict[int, float]:
    """Return {seed: value} of one cell; empty for an unknown metric."""
    return group_by_cell(cells.assign(cell=""), metric).get("", {})


def summarize_cells(cells: pd.DataFrame, metric: str) -> dict[str, Summary]:
    """Return cell → summary over its seeds, for cells with a result."""
    values = group_by_cell(cells, metric)
    return {
        cell: mean
        for cell, seed_values in values.items()
        if (mean := summarize(list(seed_values.values())))
    }


def is_missing(value: Any) -> bool:
    """Return whether a field of a data frame is None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def explain_folds(cells: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    """Explain in notes what folds mean for these metrics."""
    if has_splits(cells):
        seeds, count = cells["seed"].nunique(), cells["split"].nunique()
        return [
            f"Each value is the mean over {seeds} seed(s) on one of {count} class splits, whose "
            "test classes are disjoint; n counts splits. Differences are about further classes of "
            "this data set."
        ]
    count = cells["fold"].nunique()
    if count == 0:
        return []
    joint = [metric for metric in metrics if metric.startswith(ENSEMBLE)]
    notes = []
    if len(joint) < len(metrics):
        notes.append(
            f"Each value is the mean over {count} class folds of one seed (aggregate, or "
            "“separated”); n counts seeds."
        )
    if joint:
        notes.append(
            f"Ensemble of folds: the test classes by the embeddings of the {count} folds' networks "
            "side by side (“concatenated”), so many times as wide; one value per seed."
        )
    return notes


def complete_coordinates(frame: Frame, cells: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the level of every factor for each row.

    Cells of a one-factor study only name the factor that differs from the centre; the other levels
    are read from the parameters of the centre's runs.
    """
    names = list(dict.fromkeys(name for coords in cells["coords"] for name in coords))
    centre: dict[str, Any] = dict.fromkeys(names, CENTRE)
    at_centre = [not coords for coords in cells["coords"]]
    if not any(at_centre):
        return list(cells["coords"])
    trials = frame.trials[frame.trials["trial_id"].isin(cells["trial_id"][at_centre])]
    for params in trials["params"]:
        for name in names:
            if name in params:
                centre[name] = parse_setting(params[name])
    return [{**centre, **coords} for coords in cells["coords"]]


def parse_setting(text: str) -> Any:
    """Parse a parameter of a run, which is JSON or plain text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def collect_levels(frame: Frame, cells: pd.DataFrame) -> Levels:
    """Return the levels of each factor: off before on, numbers ascending, else as listed."""
    seen: dict[str, dict[str, Any]] = {}
    for coords in complete_coordinates(frame, cells):
        for name, value in coords.items():
            seen.setdefault(name, {}).setdefault(
                format_level(to_level_name(value)), to_level_name(value)
            )
    for name, values in seen.items():
        if set(values) == {"on", "off"}:
            seen[name] = dict.fromkeys(["off", "on"])
        elif all(isinstance(value, int | float) for value in values.values()):
            seen[name] = dict(sorted(values.items(), key=lambda item: float(item[1])))
    return {name: list(values) for name, values in seen.items()}


def collect_factor_cells(frame: Frame, cells: pd.DataFrame, metric: str) -> Cells:
    """Return values by seed at each combination of levels; equal trials count once."""
    values: dict[tuple[tuple[str, str], ...], dict[int, float]] = {}
    first: dict[str, dict[str, Any]] = {}
    for cell, coords in zip(cells["cell"], complete_coordinates(frame, cells), strict=True):
        first.setdefault(str(cell), coords)
    for cell, seed_values in group_by_cell(cells, metric).items():
        levels = ((name, format_level(to_level_name(value))) for name, value in first[cell].items())
        values.setdefault(tuple(sorted(levels)), {}).update(seed_values)
    return [(dict(key), seed_values) for key, seed_values in values.items()]


@dataclass(frozen=True)
class Trial:
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

    trials: tuple[Trial, ...]
    lost: tuple[int, ...]
    neutral: Summary | None

    def find_best(self, metric: str) -> Trial | None:
        """Return the first trial with the best value."""
        sign = -1 if is_lower_better(metric) else 1
        return max(self.trials, key=lambda trial: sign * trial.result.mean, default=None)

    def compute_best_so_far(self, metric: str) -> list[float]:
        """Return the best mean up to each finished trial."""
        better = min if is_lower_better(metric) else max
        return list(accumulate((trial.result.mean for trial in self.trials), better))


def collect_trials(cells: pd.DataFrame, metric: str) -> Trials:
    """Return the trials of a search from its cells."""
    finished: list[Trial] = []
    lost: list[int] = []
    neutral = None
    cells = cells.sort_values("idx", kind="stable")
    first = cells.drop_duplicates("cell")
    at = dict(zip(map(str, first["cell"]), first["coords"], strict=True))
    for cell, values in group_by_cell(cells, metric).items():
        result = summarize(list(values.values()))
        number = len(finished) + len(lost) + 1
        if NEUTRAL in at[cell] or cell == NEUTRAL:
            neutral = result
        elif result is None:
            lost.append(number)
        else:
            finished.append(Trial(number, cell, at[cell], result))
    return Trials(tuple(finished), tuple(lost), neutral)


def run_ids(cells: pd.DataFrame) -> tuple[str, ...]:
    """Return the runs of these cells."""
    return tuple(run for run in cells["run_id"] if run)


def list_missing_seeds(cells: pd.DataFrame) -> tuple[str, ...]:
    """Return a line for each seed without a result."""
    if all(status == "done" for status in cells["status"]):
        return ()  # as of nearly every cell of thousands, without a look by pandas
    lost = cells[cells["status"] != "done"]
    return tuple(
        f"{row['cell']}, seed {row['seed']}"
        + (f", fold {row['fold']:g}" if not is_missing(row["fold"]) else "")
        + f": {row['status']}"
        + (f" ({row['reason']})" if row["reason"] else "")
        for row in lost.to_dict("records")
    )


def describe_metric(frame: Frame, metric: str) -> str:
    """Name a metric with the protocol by which it was measured, for a caption."""
    return f"{format_metric_label(metric)}, {find_protocol(frame)}"


def find_protocol(frame: Frame) -> str:
    """Return `test-selected` if any trial selected its epoch on test classes, else
    `validation-selected`, or `nothing finished`.
    """
    if not (frame.trials["status"] == "done").any():
        return EMPTY
    protocols = {tags.get("ablate.protocol") for tags in frame.trials["tags"]}
    return "test-selected" if "paper" in protocols else "validation-selected"


def find_split_unit(frame: Frame) -> str:
    """Return what is split: "images" in classification, else "classes"."""
    units = {params.get("data.split.by") for params in frame.trials["params"]}
    return "images" if "images" in units else "classes"


def explain_protocol(frame: Frame, metrics: Sequence[str]) -> str:
    """Explain in a note which classes select, and what metrics of training classes mean."""
    if find_protocol(frame) == EMPTY:
        return "Measured: nothing yet, no trial has finished."
    what = find_split_unit(frame)
    note = (
        f"Measured: test-selected (epoch and settings picked on the test {what})."
        if find_protocol(frame) == "test-selected"
        else f"Measured: validation-selected (epoch and settings picked on validation {what}; test "
        f"{what} are read once the trial is finished)."
    )
    if any(metric.startswith(TRAIN) for metric in metrics):
        note += (
            f" Training: the {what} that were trained on, read once the trial is finished, without "
            f"augmentation; it tells how well they are fitted, and nothing of new {what}."
        )
    return note


def explain_race(frame: Frame, study: str) -> list[str]:
    """Explain in notes what a race means for a table of the study."""
    if not frame.get_declared_study(study).get("race"):
        return []
    return [
        "Raced: cells that were clearly worse got fewer seeds, so their means are biased down. "
        "They have no verdict and are no comparisons."
    ]
