"""Warn of searches that end at the edge of a range, and of training without effect."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reports.frame import LARGEST_RATIO, Frame
from reports.tables.cells import collect_trials
from reports.tables.labels import format_level, is_lower_better, is_share

STILL = 0.005  # of a share: half a point; of other metrics this part of their mean size
FULL = 1 - STILL  # a share above which nothing can move
EPOCHS = 3  # at least, for a curve to show whether it moves
LOOKED_AT = 60  # trials of a study whose curves are read, evenly spaced
MOST_STILL = 0.5  # of the trials; where fewer stood still, a search may have tried small rates
EDGE = 0.05  # of a range, measured on its own scale
NEAR = 0.2  # of a range, on the same side, where the best trials besides lie
TRIALS = 5  # finished ones, at least, for an edge to mean anything
OVERWHELMING = 1000.0  # times the metric term's gradient; trials warn of it in their logs, too
VALUES = 10  # of a range of whole numbers or steps, below which its ends are hit by chance


def find_warnings(frame: Frame) -> list[str]:
    """Return a warning for each study without progress, each term that overwhelms the metric term,
    and each search range that is too narrow.
    """
    lines = []
    for study in frame.study_order:
        metric, _ = frame.get_objective(study)
        lines += [
            *_warn_of_stationary_curves(frame, study, metric),
            *_warn_of_narrow_ranges(frame, study, metric),
        ]
        lines += _warn_of_large_gradients(frame, study)
    return lines


def is_stationary(values: Sequence[float], metric: str) -> bool | None:
    """Tell whether a metric stayed where its first epoch left it.

    It did not move where its largest and its smallest value over the epochs differ by at most 0.005
    of a share (half a point; of another metric by at most 0.5 % of its mean size). Measured on
    frozen features of typefaces at 48 px, 12 epochs of NormSoftmax: 0.0000 to 0.0043 at rates of
    1e-8 to 1e-4, which leave the embedding as it was, 0.035 and 0.047 at 1e-3, which trains it.
    None, where no curve can tell: fewer than 3 epochs, or a share that is at least 0.995
    throughout, which has no room.
    """
    if len(values) < EPOCHS or (is_share(metric) and min(values) >= FULL):
        return None
    size = 1.0 if is_share(metric) else sum(map(abs, values)) / len(values)
    return max(values) - min(values) <= STILL * size


def find_edge(axis: Mapping[str, Any], best: Sequence[float]) -> str | None:
    """Return "low" or "high" where the best values of a range lie at that end, else None.

    At an end is the best of all where it lies within 5 % of the range, measured in logarithms where
    the range is searched so, and at least one of the two next best lies within 20 % of the same
    end: if nothing depended on the value this would happen to 4 % of all ranges. Categories have no
    end. Neither has a range of fewer than 10 whole numbers or steps, whose ends are hit by chance,
    nor the low end 0, which switches off or is the least there is, nor the high end of a range from
    0 to 1, a share.

    Args:
        axis: of a search's space: low, high, log, int, step.
        best: values of the best trials, best first.
    """
    if axis.get("choice") is not None or not best:
        return None
    low, high = float(axis["low"]), float(axis["high"])
    step = axis.get("step") or (1 if axis.get("int") else None)
    if high <= low or (step is not None and (high - low) / step + 1 < VALUES):
        return None
    along = math.log if axis.get("log") else float  # the scale on which the range is searched
    shares = [(along(value) - along(low)) / (along(high) - along(low)) for value in best]
    for end, shift in (("low", shares), ("high", [1 - share for share in shares])):
        natural = low == 0 and (end == "low" or high == 1)
        if not natural and shift[0] <= EDGE and any(candidate <= NEAR for candidate in shift[1:3]):
            return end
    return None


def _warn_of_stationary_curves(frame: Frame, study: str, metric: str) -> list[str]:
    cells = frame.cells
    done = cells[(cells["study"] == study) & (cells["status"] == "done")]
    runs = list(dict.fromkeys(done["run_id"]))
    runs = runs[:: -(-len(runs) // LOOKED_AT)] if runs else []
    curves = frame.load_curves(metric, runs)
    answers = (
        is_stationary(list(values), metric) for _, values in curves.groupby("run_id")["value"]
    )
    still = [answer for answer in answers if answer is not None]
    if not still or sum(still) <= MOST_STILL * len(still):
        return []
    return [
        f"{study}: validation did not move in {sum(still)} of {len(still)} trials: the rate may be "
        "too small or the training too short."
    ]


def _warn_of_narrow_ranges(frame: Frame, study: str, metric: str) -> list[str]:
    space = frame.get_declared_study(study).get("space")
    if frame.get_design(study) != "search" or not space:
        return []
    trials = collect_trials(frame.select_study(study), metric).trials
    sign, lines = 1 if is_lower_better(metric) else -1, []
    for path, axis in space.items():
        drawn = [trial for trial in trials if path in trial.coords]
        ranked = sorted(drawn, key=lambda trial: sign * trial.result.mean)
        if len(ranked) < TRIALS:
            continue
        end = find_edge(axis, [trial.coords[path] for trial in ranked])
        if end is not None:
            lines.append(
                f"{study}: the best value of {path}, {format_level(ranked[0].coords[path])}, lies "
                f"at the {end} edge of its range, {format_level(axis['low'])} to "
                f"{format_level(axis['high'])}: widen `{path}`."
            )
    return lines


def _warn_of_large_gradients(frame: Frame, study: str) -> list[str]:
    """Warn of terms whose gradient was a thousand times the metric term's in some epoch."""
    runs = set(frame.cells["run_id"][frame.cells["study"] == study])
    trials = frame.trials[frame.trials["run_id"].isin(runs)]
    worst: dict[str, list[float]] = {}
    for run_id, names in zip(trials["run_id"], trials["ratios"], strict=True):
        for name in names:
            largest = frame.load_curves(name, [run_id])["value"].max()
            worst.setdefault(name, []).append(float(largest))
    lines = []
    for name, ratios in worst.items():
        above = [ratio for ratio in ratios if ratio >= OVERWHELMING]
        if above:
            term = name.removeprefix("observed/").removesuffix(LARGEST_RATIO)
            lines.append(
                f"{study}: the gradient of the term {term} was at least a thousand times that of "
                f"the metric term in {len(above)} of {len(ratios)} trials, at most "
                f"{max(above):.1e} times, and their networks may have stopped learning: lower "
                "`optimizer.multipliers.auxiliary`, or limit the gradient (`method.gradient_limit` "
                "of nir, `training.clip_norm`)."
            )
    return lines
