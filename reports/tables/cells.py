"""What tables and figures read of a study's cells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from reports.frame import Frame

ENSEMBLE = "ensemble/"  # how metrics of folds' embeddings side by side start
TRAIN = "train/"
EMPTY = "nothing finished"
CENTRE = "centre"  # a level that a one-factor study leaves to its centre and that no run tells


def by_seed(cells: pd.DataFrame, metric: str) -> dict[int, float]:
    """{seed: value} of the finished trials of one cell; none for a metric that no run has.

    With folds a seed's value is the mean over them, the "separated" result of the reality check
    (Musgrave et al. 2020); a seed that lacks a fold has none. Folds are parts of one estimate and
    no repeats of it. Their ensemble's (`ensemble/…`), the "concatenated" result, is one value per
    seed, which stands at the first fold.
    """
    if metric not in cells.columns:
        return {}
    if metric.startswith(ENSEMBLE):
        cells = cells[cells["fold"] == 0].assign(fold=None)
    if "fold" not in cells.columns or cells["fold"].isna().all():
        found = zip(cells["seed"], cells[metric], strict=True)
    else:
        # The mean of a seed with a gap is NaN.
        means = cells.groupby("seed", sort=False)[metric].agg(lambda v: v.mean(skipna=False))
        found = zip(means.index, means, strict=True)
    return {int(seed): float(value) for seed, value in found if pd.notna(value)}


def by_cell(cells: pd.DataFrame, metric: str) -> dict[str, dict[int, float]]:
    """`by_seed` of each cell, in the order of the rows; thousands of cells in one pass."""
    found: dict[str, dict[int, float]] = {str(cell): {} for cell in cells["cell"]}
    if metric not in cells.columns:
        return found
    if metric.startswith(ENSEMBLE) or cells["fold"].notna().any():
        groups = cells.groupby("cell", sort=False)
        return found | {str(cell): by_seed(mine, metric) for cell, mine in groups}
    for cell, seed, value in zip(cells["cell"], cells["seed"], cells[metric], strict=True):
        if pd.notna(value):
            found[str(cell)][int(seed)] = float(value)
    return found


def fold_notes(cells: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    """What folds mean for a table of these cells and metrics."""
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


def coordinates(frame: Frame, cells: pd.DataFrame) -> list[dict[str, Any]]:
    """Each row's level of every factor.

    A one-factor study's cells name the factor that is off the centre, and the centre none: the
    other levels are the centre's own, read from the parameters of its runs.
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
                try:
                    centre[name] = json.loads(params[name])
                except ValueError:
                    centre[name] = params[name]
    return [{**centre, **coords} for coords in cells["coords"]]


def run_ids(cells: pd.DataFrame) -> tuple[str, ...]:
    return tuple(run for run in cells["run_id"] if run)


def gaps(cells: pd.DataFrame) -> tuple[str, ...]:
    """One line for each seed that has no result."""
    if all(status == "done" for status in cells["status"]):
        return ()  # as of nearly every cell of thousands, without a look by pandas
    lost = cells[cells["status"] != "done"]
    return tuple(
        f"{row['cell']}, seed {row['seed']}"
        + (f", fold {row['fold']:g}" if pd.notna(row["fold"]) else "")
        + f": {row['status']}"
        + (f" ({row['reason']})" if row["reason"] else "")
        for row in lost.to_dict("records")
    )


def protocol(frame: Frame) -> str:
    """`test-selected` if any trial selected its epoch on test, else `validation-selected`; where no
    trial has finished nothing was selected: `nothing finished`."""
    if not (frame.trials["status"] == "done").any():
        return EMPTY
    protocols = {tags.get("ablate.protocol") for tags in frame.trials["tags"]}
    return "test-selected" if "paper" in protocols else "validation-selected"


def divided(frame: Frame) -> str:
    """What is divided in training, validation and test: "images" in classification, whose parts
    show the same classes, else "classes"."""
    said = {params.get("data.split.by") for params in frame.trials["params"]}
    return "images" if "images" in said else "classes"


def protocol_note(frame: Frame, metrics: Sequence[str]) -> str:
    """On which classes was selected, and what metrics of those trained on are."""
    if protocol(frame) == EMPTY:
        return "Measured: nothing yet, no trial has finished."
    what = divided(frame)
    note = (
        f"Measured: test-selected (epoch and settings picked on the test {what})."
        if protocol(frame) == "test-selected"
        else f"Measured: validation-selected (epoch and settings picked on validation {what}; test "
        f"{what} are read once the trial is finished)."
    )
    if any(metric.startswith(TRAIN) for metric in metrics):
        note += (
            f" Training: the {what} that were trained on, read once the trial is finished, without "
            f"augmentation; it tells how well they are fitted, and nothing of new {what}."
        )
    return note


def race_notes(frame: Frame, study: str) -> list[str]:
    """What a race over seeds means for a table of the study."""
    spec = (frame.document.get("studies") or {}).get(study) or {}
    if not spec.get("race"):
        return []
    return [
        "Raced: cells that were clearly worse got fewer seeds, by what the first ones showed; no p "
        "and no interval here allows for that."
    ]
