"""Warn of training that is short or without effect, of untuned rows, and of narrow ranges."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reports.frame import LARGEST_RATIO, Frame
from reports.stats.importance import Levels
from reports.tables.cells import NEUTRAL, collect_trials, find_sign
from reports.tables.labels import format_level
from trainables.words.metrics import is_share

FEWEST_STEPS = 100  # of a trial, because optimisers have hardly begun
LEAST_MOVEMENT = 0.005  # of a share: half a point; of other metrics this part of their mean size
LEAST_EPOCHS = 3  # for a curve to show whether it moves
MOST_CURVES = 60  # of a study that are read, evenly spaced
MOST_STATIONARY = 0.5  # of the trials; a search may try a few rates that are too small
EDGE = 0.05  # of a range, measured on its own scale
NEAR = 0.2  # of a range
LEAST_TRIALS = 5  # finished ones, for an edge to mean anything
LEAST_VALUES = 10  # of a range of whole numbers or steps; the ends of fewer are hit by chance
OVERWHELMING = 1000.0  # times the metric term's gradient; trials warn of it in their logs, too


def find_warnings(frame: Frame) -> list[str]:
    """Return the warnings of this module; studies with the same warning share a line."""
    lines = []
    for study in frame.study_order:
        metric, _ = frame.get_objective(study)
        lines += _warn_of_short_training(frame, study)
        lines += _warn_of_untuned_rows(frame, study)
        lines += _warn_of_stationary_curves(frame, study, metric)
        lines += _warn_of_narrow_ranges(frame, study, metric)
        lines += _warn_of_large_gradients(frame, study)
    studies: dict[str, list[str]] = {}
    for study, _, text in (line.partition(": ") for line in lines):
        studies.setdefault(text, []).append(study)
    return [f"{', '.join(names)}: {text}" for text, names in studies.items()]


def is_stationary(values: Sequence[float], metric: str) -> bool | None:
    """Return whether a metric's values over the epochs are nearly equal; None if that is unclear.

    Nearly equal: the largest and the smallest differ by at most 0.005 for a metric in [0, 1], and
    by at most 0.5 % of the mean absolute value for any other metric. Differences measured on frozen
    features of typefaces at 48 px, 12 epochs of NormSoftmax: 0.0000 to 0.0043 at learning rates of
    1e-8 to 1e-4, which leave the embedding as it was, 0.035 and 0.047 at 1e-3, which trains it.
    """
    # too few epochs, or always so near to 1 that there is no room to move
    if len(values) < LEAST_EPOCHS or (is_share(metric) and min(values) >= 1 - LEAST_MOVEMENT):
        return None
    size = 1.0 if is_share(metric) else sum(map(abs, values)) / len(values)
    return max(values) - min(values) <= LEAST_MOVEMENT * size


def find_edge(axis: Mapping[str, Any], best: Sequence[float]) -> str | None:
    """Return at which end of its range a searched parameter is best, "low" or "high", else None.

    At an end: the best value lies within 5 % of the range (in logarithms if it is searched so), and
    at least one of the two next best within 20 %. If nothing depended on the value, this would
    happen to 4 % of all ranges. Categories and ranges of fewer than 10 values have no ends. A low
    end 0, and the high end of a range 0 to 1, do not count: no value lies beyond them.

    Args:
        axis: the parameter's range in the search space: low, high, log, int, step.
        best: values of the parameter in the trials, best trial first.
    """
    if axis.get("choice") is not None:
        return None
    low, high = float(axis["low"]), float(axis["high"])
    step = axis.get("step") or (1 if axis.get("int") else 0)
    if high <= low or (step and Levels(low, high, step).count < LEAST_VALUES):
        return None
    scale = math.log if axis.get("log") else float
    from_low = [(scale(value) - scale(low)) / (scale(high) - scale(low)) for value in best]
    from_high = [1 - distance for distance in from_low]
    if low != 0 and from_low[0] <= EDGE and min(from_low[1:3]) <= NEAR:
        return "low"
    is_share_axis = (low, high) == (0, 1)
    if not is_share_axis and from_high[0] <= EDGE and min(from_high[1:3]) <= NEAR:
        return "high"
    return None


def _warn_of_short_training(frame: Frame, study: str) -> list[str]:
    """Return a warning if each finished trial of a study had fewer than 100 steps."""
    cells = frame.cells[frame.cells["study"] == study]
    steps = [int(count) for count in cells["steps"].dropna()] if "steps" in cells else []
    if not steps or (most := max(steps)) >= FEWEST_STEPS:
        return []
    return [
        f"{study}: {most} steps are too few to show what a setting does. Raise training.epochs, or "
        "lower training.batch_size."
    ]


def _warn_of_untuned_rows(frame: Frame, study: str) -> list[str]:
    """Return a warning if rows with several losses or methods have settings that no study tuned."""
    budgets = frame.get_plan_note("tuning", study) or {}
    is_published = frame.get_declared_study(study).get("tuning") == "as_published"
    if any(budgets.values()) or not budgets or is_published:
        return []
    runs = set(frame.cells["run_id"][frame.cells["study"] == study])
    settings = frame.trials["params"][frame.trials["run_id"].isin(runs)]
    if len({(each.get("method.name"), each.get("loss.name")) for each in settings}) < 2:
        return []
    return [
        f"{study}: no study tuned these rows, so a difference may come from settings that suit one "
        "row better. Centre each row on a search of its own (`around`)."
    ]


def _warn_of_stationary_curves(frame: Frame, study: str, metric: str) -> list[str]:
    """Return a warning if a metric stayed the same over the epochs of most of a study's trials."""
    cells = frame.cells
    done = cells[(cells["study"] == study) & (cells["status"] == "done")]
    runs = list(dict.fromkeys(done["run_id"]))
    runs = runs[:: max(1, math.ceil(len(runs) / MOST_CURVES))]  # a sample: each costs a request
    curves = frame.load_curves(metric, runs).groupby("run_id")["value"]
    answers = [is_stationary(list(values), metric) for _, values in curves]
    stationary, curves_read = answers.count(True), len(answers) - answers.count(None)
    if stationary <= MOST_STATIONARY * curves_read:
        return []
    return [
        f"{study}: the validation metric did not move in {stationary} of {curves_read} trials. The "
        "learning rate may be too small or the training too short."
    ]


def _warn_of_narrow_ranges(frame: Frame, study: str, metric: str) -> list[str]:
    """Return warnings of a search whose trials all tie or are best at an end of a range.

    No warning is needed of an end beyond which the method is off, if it also competed switched off.
    """
    space = frame.get_declared_study(study).get("space")
    if frame.get_design(study) != "search" or not space:
        return []
    sign = find_sign(frame, study, metric)
    trials = collect_trials(frame.select_study(study), metric).trials
    ranked = sorted(trials, key=lambda trial: -sign * trial.result.mean)
    lines = []
    if len(trials) > 1 and len({trial.result.mean for trial in trials}) == 1:
        lines.append(
            f"{study}: all {len(trials)} trials have the same {metric}, so none is the best. "
            "Take a harder task, more validation classes or a finer metric."
        )
    off_values = _find_off_values(frame, study)
    for path, axis in space.items():
        # values of the best trials first; a conditional parameter is not in every trial
        best = [trial.coords[path] for trial in ranked if path in trial.coords]
        if len(best) >= LEAST_TRIALS and (end := find_edge(axis, best)):
            off = off_values.get(path)
            if off is not None and (off < axis["low"] if end == "low" else off > axis["high"]):
                continue
            low, high = format_level(axis["low"]), format_level(axis["high"])
            lines.append(
                f"{study}: the best value of `{path}`, {format_level(best[0])}, lies at the {end} "
                f"edge of the range that was searched, {low} to {high}. Widen this range."
            )
    return lines


def _find_off_values(frame: Frame, study: str) -> dict[str, float]:
    """Return the values that switch the method of a search off, if this was among its finalists."""
    finals = [
        name
        for name in frame.study_order
        if frame.get_design(name) == "promote" and frame.get_declared_study(name).get("of") == study
    ]
    cells = frame.cells[frame.cells["study"].isin(finals) & (frame.cells["cell"] == NEUTRAL)]
    values: dict[str, float] = {}
    for params in frame.trials["params"][frame.trials["run_id"].isin(cells["run_id"])]:
        values |= {path: x for path, x in params.items() if isinstance(x, int | float)}
    return values


def _warn_of_large_gradients(frame: Frame, study: str) -> list[str]:
    """Return warnings of loss terms whose gradient was at least 1000 times the metric term's."""
    runs = set(frame.cells["run_id"][frame.cells["study"] == study])
    trials = frame.trials[frame.trials["run_id"].isin(runs)]
    trials = trials[:: max(1, math.ceil(len(trials) / MOST_CURVES))]  # each costs a request
    largest: dict[str, list[float]] = {}  # logged ratio of gradients → its maximum in each trial
    for run_id, names in zip(trials["run_id"], trials["ratios"], strict=True):
        for name in names:
            if not name.endswith(LARGEST_RATIO):
                continue
            ratio = frame.load_curves(name, [run_id])["value"].max()
            largest.setdefault(name, []).append(float(ratio))
    lines = []
    for name, ratios in largest.items():
        above = [ratio for ratio in ratios if ratio >= OVERWHELMING]
        if above:
            term = name.removeprefix("observed/").removesuffix(LARGEST_RATIO)
            lines.append(
                f"{study}: the gradient of the term {term} was at least a thousand times that of "
                f"the metric term in {len(above)} of {len(ratios)} trials (at most "
                f"{max(above):.1e} times), so their networks may have stopped learning. Lower "
                "`optimizer.multipliers.auxiliary`, or limit the gradient by `training.clip_norm` "
                "or, for the method nir, by `method.gradient_limit`."
            )
    return lines
