"""Read the finished trials of comparisons, from which other designs of these are estimated."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from ablate.ledger.queries import list_looks
from ablate.plan.warnings import count_comparisons
from ablate.sweep.progression import Progression, find_baseline_index
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


def load_pilots(progression: Progression) -> dict[str, Pilot]:
    """Return study → its pilot, of the studies that compare rows and have enough finished trials.

    A pilot needs two rows with results at two seeds, or two splits.
    """
    plan, facts, pilots = progression.plan, progression.facts, dict[str, Pilot]()
    for name in plan.order:
        comparisons, factors, baselines = count_comparisons(plan, name)
        study = plan.spec.studies[name]
        if not comparisons or factors is not None or study.folds or name in plan.copies:
            continue
        metric, configs, done = plan.find_primary_metric(name), dict[str, dict[str, Any]](), 0
        split, _, short_name = metric.partition("/")
        runs: dict[str, dict[int, dict[int, float]]] = {}
        for cell in progression.studies[name].cells:
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
            level = _find_next_level(progression, name)
            family = Family(plan.spec.report.rule, n_rows, comparisons - n_rows, level)
            fixed = name, metric, tuple(configs.values()), study.splits
            classes = None if study.splits else _load_class_variances(progression, name, metric)
            pilots[name] = Pilot(*fixed, done, components, family, classes)
    return pilots


def _find_next_level(progression: Progression, name: str) -> float:
    """Return the level of the next look at a study's verdicts, after those in the ledger."""
    plan, least = progression.plan, 1 if progression.plan.spec.studies[name].splits else 2
    rows = list_looks(progression.facts.ledger, plan.sweep_id)
    looks = [row for row in rows if row["study"] == name and row["seeds"] >= least]
    return compute_look_level(1 + len(looks), plan.spec.report.looks or 1)


def _load_class_variances(
    progression: Progression, name: str, metric: str
) -> ClassVariances | None:
    """Return the mean variances of the rows' differences to the baseline, by class and seed."""
    split, _, short_name = metric.partition("/")
    values: dict[str, dict[int, ClassValues]] = {}
    for cell in progression.studies[name].cells:
        records = [progression.facts.ledger.get_classes(cell.trial_id).get(split)]
        if (of_seed := average_records(records, short_name)) is not None:
            values.setdefault(cell.cell, {})[cell.seed] = of_seed
    points = progression.plan.spec.studies[name].all_points
    baseline = points[find_baseline_index(progression.plan, name)].cell
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
