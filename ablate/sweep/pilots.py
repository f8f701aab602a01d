"""Read the finished trials of comparisons, from which other designs of these are estimated."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.plan.warnings import count_comparisons
from ablate.sweep.progression import Progression
from reports.stats.variance import (
    Components,
    Design,
    Family,
    Runs,
    draw_half_widths,
    estimate_components,
)
from reports.tables.advice import advise_on_row
from reports.tables.labels import HALF_WIDTH, choose_smallest_effect, display_scale


@dataclass(frozen=True)
class Pilot:
    """The finished trials of a study's comparison.

    Attributes:
        configs: a configuration of each row. splits: of the study; None without.
        done: number of finished trials.
    """

    study: str
    metric: str
    configs: tuple[dict[str, Any], ...]
    splits: int | None
    done: int
    components: Components
    family: Family


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
            family = Family(plan.spec.report.rule, n_rows, comparisons - n_rows)
            fixed = name, metric, tuple(configs.values()), study.splits
            pilots[name] = Pilot(*fixed, done, components, family)
    return pilots


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
