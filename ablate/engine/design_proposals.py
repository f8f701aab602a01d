"""Propose the cheapest design of a comparison that decides, from its finished trials.

The variance components of the finished trials give the half-width that another number of seeds or
splits would have (`reports/stats/variance.py`). A design is good enough if its intervals are at
most 0.8 δ to either side in 85 % of the draws, since a mere expectation would fail in half of all
cases. If no design is, 50 % is enough, and the text says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ablate.engine.preflight import preview_progression
from ablate.engine.ray.resources import count_fitting_here
from ablate.engine.settings import Settings
from ablate.engine.work_estimate import Estimate, load_measured_rates
from ablate.plan.plan import Plan
from ablate.plan.warnings import count_comparisons
from ablate.sweep.pilots import Pilot, load_pilots
from reports.stats.variance import (
    Components,
    Design,
    choose_blocks,
    choose_seeds,
    draw_half_widths,
)
from reports.tables.advice import format_half_widths
from reports.tables.labels import HALF_WIDTH, display_scale, format_metric_name
from trainables.errors import ConfigError

SHARES = (0.85, 0.5)  # of the draws in which a proposed design is short enough
MOST_SEEDS = 100  # of a split
SPLIT_FACTORS = (1, 2, 4)  # times the splits of the finished trials
CLAIMS = {True: "further classes", False: "further seeds, one split"}


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
        over_splits = pilot.splits is not None and known is components
        halves = draw_half_widths(known, design, family)
        is_short = bool(np.quantile(halves, share) <= wanted)
        if over_splits and not is_short:
            design = Design(design.blocks, 0)
            halves = draw_half_widths(known, design, family)
        is_grown = known is components and pilot.splits in (None, design.blocks)
        to_train = len(pilot.configs) * design.trainings - (pilot.done if is_grown else 0)
        proposals.append(Proposal(design, over_splits, halves, is_short, max(0, to_train)))

    if pilot.splits is None:
        add(choose_blocks(components, family, wanted, share=share), components)
    elif components.seed_df:
        single = components.forget_splits()
        add(choose_blocks(single, family, wanted, share=share), single)
        for factor in SPLIT_FACTORS:
            blocks = factor * pilot.splits
            seeds = choose_seeds(components, family, wanted, MOST_SEEDS, share=share, blocks=blocks)
            add(Design(blocks, seeds or MOST_SEEDS), components)
    return proposals


def choose_proposal(proposals: list[Proposal]) -> Proposal | None:
    """Return the cheapest design that is short enough, of those with the strongest claim."""
    strongest = any(proposal.over_splits for proposal in proposals)
    fitting = [p for p in proposals if p.is_short and p.over_splits == strongest]
    return min(fitting, key=lambda proposal: proposal.to_train, default=None)


def describe_designs(plan: Plan, settings: Settings, smallest: float) -> str:
    """Describe the cheapest designs that decide for δ = `smallest`, in the unit of the tables.

    Raises:
        ConfigError: no study compares rows, or the ledger has too few trials of those that do.
    """
    compared = [name for name in plan.order if count_comparisons(plan, name)[0]]
    if not compared:
        raise ConfigError(
            "--decide",
            "no study has a table that compares rows with a baseline",
            "Add a table of the kind compare to report.tables",
        )
    with preview_progression(plan, settings) as progression:
        pilots, rates = load_pilots(progression), load_measured_rates(progression.facts.ledger)
    if not pilots:
        raise ConfigError(
            "--decide",
            f"{settings.ledger} has no two rows of {', '.join(compared)} with results at two seeds "
            "or splits",
            "Run a pilot first, with `--seeds 3`, or with `splits: 5` and `--seeds 2`",
        )
    lines: list[str] = []
    for pilot in pilots.values():
        estimate = Estimate()
        for config in pilot.configs:
            estimate.add(config, rates)
        hours = None
        if not estimate.unknown:  # of one training of each row
            hours = estimate.seconds / count_fitting_here(settings.request) / 3600
        lines += list_design_lines(pilot, smallest, hours)
    return "\n".join(lines)


def list_design_lines(pilot: Pilot, smallest: float, hours: float | None) -> Iterator[str]:
    """Yield the lines on a study: a table of designs, then the one proposed and its YAML.

    Args:
        hours: of one training of each row; None if unknown.
    """
    scale, wanted = display_scale(pilot.metric), HALF_WIDTH * smallest
    for share in SHARES:
        proposals = propose_designs(pilot, wanted / scale, share)
        if best := choose_proposal(proposals):
            break
    yield (
        f"{pilot.study}: designs with intervals of at most ±{wanted:.2g} (0.8 δ, "
        f"{format_metric_name(pilot.metric)}), by {pilot.done} finished trials of "
        f"{len(pilot.configs)} rows"
    )
    rows = [("design", "trainings a row", "hours", "half-width", "holds for")]
    for item in proposals:
        design, name = item.design, f"{item.design.blocks} seeds"
        if item.over_splits:
            name = f"{design.blocks} splits × {design.seeds or 'any number of'} seeds"
        cost = (f"{design.trainings:,}", "unknown") if design.seeds else ("", "")
        if hours is not None and design.seeds:
            cost = cost[0], f"{item.to_train / len(pilot.configs) * hours:.2g}"
        halves = format_half_widths(item.halves, scale)
        if not item.is_short:
            is_unsure = np.median(item.halves) * scale <= wanted
            halves += ", perhaps too long" if is_unsure else ", too long"
        rows.append((name, *cost, halves, CLAIMS[item.over_splits]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        yield f"  {'  '.join(padded)}".rstrip()
    if pilot.splits is None:
        yield "  over splits: unknown; a pilot with `splits: 5` and 2 seeds a split would tell"
    elif pilot.components.seed_df:
        yield (
            f"  {pilot.components.seed_share:.0%} of the variance of a split's mean is training "
            "noise. More splits of the same classes have fewer classes each"
        )
    else:
        yield "  seeds: unknown with one seed a split; a pilot with 2 seeds a split would tell"
    if best is None:
        yield "proposed: none; only further classes, more pilot trials or a larger δ would decide"
        return
    splits = f"splits: {best.design.blocks}, " if best.over_splits else ""
    seeds = best.design.seeds if best.over_splits else best.design.blocks
    yield (
        f"proposed: {best.to_train} trials to train, enough in {share:.0%} of cases that these "
        "finished trials leave possible. Write into the spec:"
    )
    yield f"  studies: {{{pilot.study}: {{{splits}seeds: {seeds}}}}}"
