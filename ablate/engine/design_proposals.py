"""Propose the cheapest design of a comparison that decides, from its finished trials.

The variance components of the finished trials give the half-width that another number of seeds or
splits would have (`reports/stats/variance.py`). A design is good enough if its intervals are at
most 0.8 δ to either side in 85 % of the draws, since a mere expectation would fail in half of all
cases. If no design is, 50 % is enough, and the text says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ablate.engine.ray.resources import count_fitting_here
from ablate.engine.settings import Settings
from ablate.engine.work_estimate import Estimate, load_measured_rates
from ablate.plan.plan import Plan
from ablate.plan.warnings import count_comparisons
from ablate.sweep.progression import Progression
from reports.stats.variance import (
    Components,
    Design,
    Family,
    Runs,
    choose_blocks,
    choose_seeds,
    draw_half_widths,
    estimate_components,
)
from reports.tables.advice import advise_on_row, format_half_widths
from reports.tables.labels import (
    HALF_WIDTH,
    choose_smallest_effect,
    display_scale,
    format_metric_name,
)
from trainables.errors import ConfigError

SHARES = (0.85, 0.5)  # of the draws in which a proposed design is short enough
MOST_SEEDS = 100  # of a split
SPLIT_FACTORS = (1, 2, 4)  # times the splits of the finished trials
CLAIMS = {True: "further classes", False: "further seeds, one split"}


@dataclass(frozen=True)
class Pilot:
    """The finished trials of a study's comparison.

    Attributes:
        rows: number of cells. splits: of the study; None without.
        done: number of finished trials. seconds: of one training of each row; None if unknown.
    """

    study: str
    metric: str
    rows: int
    splits: int | None
    done: int
    seconds: float | None
    components: Components
    family: Family


@dataclass(frozen=True)
class Proposal:
    """A design, and its half-widths on the scale of the runs.

    Attributes:
        over_splits: whether claims hold for further classes.
        is_short: whether its intervals are short enough in as many draws as asked for.
        to_train: number of trials that are not in the ledger.
    """

    design: Design
    over_splits: bool
    halves: np.ndarray
    is_short: bool
    to_train: int


def load_pilots(progression: Progression) -> dict[str, Pilot]:
    """Return study → its pilot, of the studies that compare rows and have enough finished trials.

    A pilot needs two rows with results at two seeds, or two splits.
    """
    plan, facts, pilots = progression.plan, progression.facts, dict[str, Pilot]()
    rates = load_measured_rates(facts.ledger)
    for name in plan.order:
        comparisons, factors, baselines = count_comparisons(plan, name)
        study = plan.spec.studies[name]
        if not comparisons or factors is not None or study.folds or name in plan.copies:
            continue
        metric, estimate, done = plan.find_primary_metric(name), Estimate(), 0
        split, _, short_name = metric.partition("/")
        runs: dict[str, dict[int, dict[int, float]]] = {}
        for cell in progression.studies[name].cells:
            value = facts[cell.trial_id].evaluations.get(split, {}).get(short_name)
            if value is not None and np.isfinite(value):
                block, seed = (cell.seed, 0) if cell.fold is None else (cell.fold, cell.seed)
                if cell.cell not in runs:
                    estimate.add(cell.config, rates)
                runs.setdefault(cell.cell, {}).setdefault(block, {})[seed] = value
                done += 1
        rows: list[Runs] = [*runs.values()]
        distinct = [row for i, row in enumerate(rows) if row not in rows[:i]]
        components = estimate_components(distinct) if len(distinct) > 1 else None
        if components is not None:
            n_rows = max(1, comparisons // baselines)
            family = Family(plan.spec.report.rule, n_rows, comparisons - n_rows)
            seconds = None if estimate.unknown else estimate.seconds
            pilots[name] = Pilot(
                name, metric, len(rows), study.splits, done, seconds, components, family
            )
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


def propose_designs(pilot: Pilot, wanted: float, share: float) -> list[Proposal]:
    """Return the cheapest design of each kind: seeds of one split, splits × seeds, more splits.

    A design of infinitely many seeds stands for a kind of which none is good enough.

    Args:
        wanted: largest half-width, on the scale of the runs.
        share: of the draws that must be as short.
    """
    components, family = pilot.components, pilot.family
    proposals: list[Proposal] = []

    def add(design: Design, known: Components) -> None:
        halves = draw_half_widths(known, design, family)
        is_short = design.seeds > 0 and bool(np.quantile(halves, share) <= wanted)
        over_splits = pilot.splits is not None and known is components
        if over_splits and design.seeds and not is_short:
            return add(Design(design.blocks, 0), known)
        is_grown = known is components and pilot.splits in (None, design.blocks)
        to_train = pilot.rows * design.trainings - (pilot.done if is_grown else 0)
        proposals.append(Proposal(design, over_splits, halves, is_short, max(0, to_train)))

    if pilot.splits is None or components.seed_df:
        single = components if pilot.splits is None else components.forget_splits()
        add(choose_blocks(single, family, wanted, share=share), single)
    for factor in SPLIT_FACTORS if components.seed_df else (1,):
        if pilot.splits is not None:
            blocks = factor * pilot.splits
            seeds = choose_seeds(components, family, wanted, MOST_SEEDS, share=share, blocks=blocks)
            add(Design(blocks, seeds or 0), components)
    return proposals


def choose_proposal(proposals: list[Proposal]) -> Proposal | None:
    """Return the cheapest design that is short enough, of those with the strongest claim."""
    strongest = max(proposal.over_splits for proposal in proposals)
    fitting = [p for p in proposals if p.is_short and p.over_splits == strongest]
    return min(fitting, key=lambda proposal: proposal.to_train, default=None)


def describe_designs(plan: Plan, settings: Settings, smallest: float) -> str:
    """Describe the cheapest designs that decide for δ = `smallest`, in the unit of the tables.

    Raises:
        ConfigError: no study compares rows, or the ledger has too few trials of those that do.
    """
    from ablate.engine.preflight import preview_progression

    compared = [name for name in plan.order if count_comparisons(plan, name)[0]]
    if not compared:
        raise ConfigError(
            "--decide",
            "no study has a table that compares rows with a baseline",
            "Add a table of the kind compare to report.tables",
        )
    with preview_progression(plan, settings) as progression:
        pilots = load_pilots(progression)
    if not pilots:
        raise ConfigError(
            "--decide",
            f"{settings.ledger} has no two rows of {', '.join(compared)} with results at two seeds "
            "or splits",
            "Run a pilot first, with `--seeds 3`, or with `splits: 5` and `--seeds 2`",
        )
    parallel = count_fitting_here(settings.request)
    lines: list[str] = []
    for pilot in pilots.values():
        lines += _list_lines(pilot, smallest, parallel)
    return "\n".join(lines)


def _list_lines(pilot: Pilot, smallest: float, parallel: int) -> Iterator[str]:
    """Yield the lines on a study: a table of designs, then the one proposed and its YAML."""
    scale, components = display_scale(pilot.metric), pilot.components
    wanted = HALF_WIDTH * smallest
    for share in SHARES:
        proposals = propose_designs(pilot, wanted / scale, share)
        if best := choose_proposal(proposals):
            break
    yield (
        f"{pilot.study}: designs with intervals of at most ±{wanted:.2g} (0.8 δ, "
        f"{format_metric_name(pilot.metric)}), by {pilot.done} finished trials of {pilot.rows} rows"
    )
    rows = [("design", "trainings a row", "hours", "half-width", "holds for")]
    for item in proposals:
        design, seconds = item.design, pilot.seconds
        hours = "unknown"
        if seconds is not None:
            hours = f"{item.to_train / pilot.rows * seconds / parallel / 3600:.2g}"
        name = f"{design.blocks} seeds"
        if item.over_splits:
            name = f"{design.blocks} splits × {design.seeds or 'any number of'} seeds"
        cost = (f"{design.trainings:,}", hours) if design.seeds else ("", "")
        halves = format_half_widths(item.halves, scale) + ("" if item.is_short else ", too long")
        rows.append((name, *cost, halves, CLAIMS[item.over_splits]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        yield f"  {'  '.join(padded)}".rstrip()
    if pilot.splits is None:
        yield "  splits: unknown without trials over splits; a pilot is `splits: 5` with 2 seeds"
    elif components.seed_df:
        yield (
            f"  {components.seed_share:.0%} of the variance of a split's mean is training noise. "
            "More splits of the same classes have fewer classes each, so that levels change"
        )
    if best is None:
        yield "proposed: none of these; only further classes or a larger δ would decide"
        return
    splits = f"splits: {best.design.blocks}, " if best.over_splits else ""
    seeds = best.design.seeds if best.over_splits else best.design.blocks
    yield (
        f"proposed: {best.to_train} trials to train, which is enough in {share:.0%} of all cases "
        f"by what these trials show. Write into the spec:"
    )
    yield f"  studies: {{{pilot.study}: {{{splits}seeds: {seeds}}}}}"
