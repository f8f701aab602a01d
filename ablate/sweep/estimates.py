"""Estimate from finished trials of the ledger what others need, and what other designs would show.

Trials of one kind (data, network, loss, method) have a memory, and seconds per step, of the form
a + b × size with a, b ≥ 0; the size is the number of pixels in a batch. One known size gives the
least that another one can need, two sizes give a line. If trials of several devices are known, the
device that needs least counts, so that a proposal is refused only if it fits on none of them.

A pilot is the finished trials of a comparison, from which other designs of it are estimated.
"""

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from ablate.ledger import queries
from ablate.ledger.limits import read_needs
from ablate.ledger.queries import list_looks
from ablate.ledger.records import Records
from ablate.plan.warnings import count_comparisons
from ablate.spec.checks import find_baseline_index
from ablate.sweep.state import SweepState
from reports.stats.blocks import compute_look_level
from reports.stats.comparison_rule import Sample
from reports.stats.planning import (
    Design,
    Family,
    Runs,
    VarianceComponents,
    draw_half_widths,
    estimate_components,
)
from reports.stats.wider_claims import (
    ClassValues,
    ClassVariances,
    average_records,
    build_class_rule,
)
from reports.tables.advice import advise_on_row
from trainables.words.metrics import HALF_WIDTH, choose_smallest_effect, display_scale

KIND = {  # fields that decide how long an epoch takes
    "data": ("name", "root", "image_size"),
    "backbone": ("name", "mode", "blocks"),
    "training": ("batch_size", "micro_batch", "checkpointing"),
    "embedding": ("dim",),
    "loss": ("name",),
}
SIZES = ("image_size", "batch_size", "micro_batch")  # those that are numbers, which costs grow with


def build_cost_key(config: Mapping[str, Any], *, sized: bool = True) -> str:
    """Return a text that is equal for configurations whose epochs take equally long.

    It names data set, network, batch and method, but no float options, which cost no time, and no
    options that are None, which earlier trials may lack.

    Args:
        sized: whether trials of different image and batch sizes have different keys.
    """

    def drop_floats(options: Any) -> Any:
        if not isinstance(options, Mapping):
            return options
        kept = {k: v for k, v in options.items() if v is not None and not isinstance(v, float)}
        return {k: drop_floats(v) for k, v in kept.items()}

    fields = [
        config.get(section, {}).get(name)
        for section, names in KIND.items()
        for name in names
        if sized or name not in SIZES
    ]
    return json.dumps([*fields, drop_floats(config["method"])], sort_keys=True)


@dataclass(frozen=True)
class TrialCost:
    """What a finished trial needed.

    Attributes:
        kind: its `build_cost_key` without sizes.
        sizes: pixels that are in memory at once, and pixels of a step.
        memory: bytes; None if unknown.
        step: seconds of a step.
        images: number of images of an epoch.
    """

    kind: str
    device: str
    sizes: tuple[int, int]
    memory: float | None
    step: float
    images: float


class TrialCosts:
    """Estimate what trials need from the finished trials of the ledger."""

    def __init__(self, records: Records) -> None:
        self._records, self._latest = records, 0.0  # end of the newest trial that was read
        self._measured: dict[str, TrialCost] = {}

    def estimate_needs(self, config: Mapping[str, Any]) -> dict[str, float]:
        """Return the "memory" and "seconds" of a configuration, as far as they are known."""
        # read the trials that have finished since the last call
        for row in queries.list_finished_trials(self._records, self._latest):
            self._latest, needs = max(self._latest, row["ended"]), read_needs(row)
            has_batches = "batch_size" in row["config"]["training"]  # not in every older ledger
            if "seconds" in needs and row["steps"] and row["epochs"] and has_batches:
                self._measured[row["trial_id"]] = TrialCost(
                    build_cost_key(row["config"], sized=False),
                    str((row["provenance"] or {}).get("device")),
                    _measure_sizes(row["config"]),
                    needs.get("memory"),
                    needs["seconds"] / row["steps"],
                    row["steps"] / row["epochs"] * row["config"]["training"]["batch_size"],
                )
        # estimate by the trials of each device
        key, (in_memory, in_step) = build_cost_key(config, sized=False), _measure_sizes(config)
        by_device: dict[str, list[TrialCost]] = {}
        for trial in self._measured.values():
            if trial.kind == key:
                by_device.setdefault(trial.device, []).append(trial)
        estimates: dict[str, list[float]] = {}
        for trials in by_device.values():
            training = config["training"]
            images = statistics.median(trial.images for trial in trials)
            n_steps = training["epochs"] * max(1.0, images / training["batch_size"])
            step = estimate_at([(trial.sizes[1], trial.step) for trial in trials], in_step)
            estimates.setdefault("seconds", []).append(n_steps * step)
            if memory := [(t.sizes[0], t.memory) for t in trials if t.memory is not None]:
                estimates.setdefault("memory", []).append(estimate_at(memory, in_memory))
        return {name: min(values) for name, values in estimates.items()}


def _measure_sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of pixels that are in memory at once, and that of a step."""
    training, pixels = config["training"], (config["data"].get("image_size") or 1) ** 2
    at_once = training.get("micro_batch") or training["batch_size"]
    return at_once * pixels, training["batch_size"] * pixels


def estimate_at(measured: Iterable[tuple[float, float]], size: float) -> float:
    """Return the cost at `size` of the line through the two nearest sizes of (size, cost) pairs.

    The line is kept within what a + b × size with a, b ≥ 0 allows from the nearest size. If all
    pairs have one size, this is the least cost that such a line can have.
    """
    by_size: dict[float, list[float]] = {}
    for measured_size, cost in measured:
        by_size.setdefault(measured_size, []).append(cost)
    costs = {key: statistics.median(values) for key, values in by_size.items()}
    nearest, *others = sorted(costs, key=lambda key: abs(key - size))
    cost = costs[nearest]
    lowest, highest = sorted((cost, cost * size / nearest))
    if not others:
        return lowest
    slope = (costs[others[0]] - cost) / (others[0] - nearest)
    return min(max(cost + slope * (size - nearest), lowest), highest)


@dataclass(frozen=True)
class Pilot:
    """The finished trials of a study's comparison.

    Attributes:
        configs: a configuration of each row. splits: of the study; None without.
        done: number of finished trials.
        classes: the variances of a difference over classes and seeds, means over the rows; None
            with splits, or without values by class.
    """

    study: str
    metric: str
    configs: tuple[dict[str, Any], ...]
    splits: int | None
    done: int
    components: VarianceComponents
    family: Family
    classes: ClassVariances | None = None


def load_pilots(state: SweepState) -> dict[str, Pilot]:
    """Return study → its pilot, of the studies that compare rows and have enough finished trials.

    A pilot needs two rows with results at two seeds, or two splits.
    """
    plan, facts, pilots = state.plan, state.facts, dict[str, Pilot]()
    for name in plan.order:
        comparisons, factors, baselines = count_comparisons(plan, name)
        study = plan.spec.studies[name]
        if not comparisons or factors is not None or study.folds or name in plan.copies:
            continue
        metric, configs, done = plan.find_primary_metric(name), dict[str, dict[str, Any]](), 0
        split, _, short_name = metric.partition("/")
        runs: dict[str, dict[int, dict[int, float]]] = {}
        for cell in state.studies[name].cells:
            value = facts[cell.trial_id].evaluations.get(split, {}).get(short_name)
            if value is not None and np.isfinite(value):
                block, seed = (cell.seed, 0) if cell.fold is None else (cell.fold, cell.seed)
                configs.setdefault(cell.cell, cell.config)
                runs.setdefault(cell.cell, {}).setdefault(block, {})[seed] = value
                done += 1
        rows: list[Runs] = [*runs.values()]
        distinct = [row for i, row in enumerate(rows) if row not in rows[:i]]
        components = estimate_components(distinct) if len(distinct) > 1 else None
        if components is not None:
            n_rows = max(1, comparisons // baselines)
            level = _find_next_level(state, name)
            family = Family(plan.spec.report.rule, n_rows, comparisons - n_rows, level)
            fixed = name, metric, tuple(configs.values()), study.splits
            classes = None if study.splits else _load_class_variances(state, name, metric)
            pilots[name] = Pilot(*fixed, done, components, family, classes)
    return pilots


def _find_next_level(state: SweepState, name: str) -> float:
    """Return the level of the next look at a study's verdicts, after those in the ledger."""
    plan, least = state.plan, 1 if state.plan.spec.studies[name].splits else 2
    rows = list_looks(state.facts.ledger, plan.sweep_id)
    looks = [row for row in rows if row["study"] == name and row["seeds"] >= least]
    return compute_look_level(1 + len(looks), plan.spec.report.looks or 1)


def _load_class_variances(state: SweepState, name: str, metric: str) -> ClassVariances | None:
    """Return the mean variances of the rows' differences to the baseline, by class and seed."""
    split, _, short_name = metric.partition("/")
    values: dict[str, dict[int, ClassValues]] = {}
    for cell in state.studies[name].cells:
        records = [state.facts.ledger.get_classes(cell.trial_id).get(split)]
        if (of_seed := average_records(records, short_name)) is not None:
            values.setdefault(cell.cell, {})[cell.seed] = of_seed
    study = state.plan.spec.studies[name]
    baseline = study.all_points[find_baseline_index(state.plan.spec.report, name, study)].cell
    blocks = {cell: dict.fromkeys(seeds, 0.0) for cell, seeds in values.items()}
    sample = Sample(blocks.pop(baseline, {}), blocks)
    rule = build_class_rule(values, sample, baseline)
    found = [rule.estimate_variances(cell) for cell in blocks] if rule else []
    known = [variances for variances in found if variances and variances.between_classes]
    if not known:
        return None
    return ClassVariances(
        fmean(variances.between_classes for variances in known),
        fmean(variances.between_seeds for variances in known),
        fmean(variances.rest for variances in known),
        fmean(variances.df for variances in known),
        min(variances.seeds for variances in known),
    )


def describe_advice(pilot: Pilot, smallest: Mapping[str, float]) -> list[str]:
    """Say what would shorten the intervals of finished trials, if they are longer than 0.8 δ."""
    wanted = HALF_WIDTH * choose_smallest_effect(smallest, pilot.metric)
    scale, components = display_scale(pilot.metric), pilot.components
    design = Design(components.blocks, max(1, round(components.seeds)))
    halves = draw_half_widths(components, design, pilot.family) * scale
    if not wanted or np.median(halves) <= wanted:
        return []
    has_splits = pilot.splits is not None
    advice = advise_on_row(components, pilot.family, wanted / scale, scale, has_splits=has_splits)
    return [f"by its {pilot.done} finished trials, {advice}"]
