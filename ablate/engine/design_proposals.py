"""Propose the cheapest design of a comparison that decides, from its finished trials.

The variance components of the finished trials give the half-width that another number of seeds or
splits would have (`reports/stats/planning.py`). A design is good enough if its intervals are at
most 0.8 δ to either side in 90 % of the draws, since a mere expectation would fail in half of all
cases. If no design is, 50 % is enough, and the text says so.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ablate.engine.preflight import preview_progression
from ablate.engine.resources import count_fitting_here
from ablate.engine.settings import Settings
from ablate.engine.work_estimate import Estimate, load_measured_rates
from ablate.plan.plan import Plan
from ablate.plan.warnings import count_comparisons
from ablate.sweep.estimates import Pilot, load_pilots
from reports.stats.planning import (
    Design,
    choose_seeds,
    draw_half_widths,
)
from reports.tables.advice import format_half_widths
from reports.tables.labels import format_confidence
from trainables.words.errors import ConfigError
from trainables.words.metrics import HALF_WIDTH, display_scale, format_metric_name

SHARES = (0.9, 0.5)  # of the draws in which a proposed design is short enough
MOST_SEEDS, MOST_BLOCKS = 100, 400  # of a split; of a study without splits
SPLIT_FACTORS = (1, 2, 4)  # times the splits of the finished trials
ONE_SPLIT, ONE_TRAINING_SET = "further seeds, one split", "further classes, one training set"
FURTHER_CLASSES = "further classes"
CLAIMS = (ONE_SPLIT, ONE_TRAINING_SET, FURTHER_CLASSES)  # the strongest last


@dataclass(frozen=True)
class Proposal:
    """A design, and its half-widths on the scale of the runs.

    Attributes:
        claim: for what its claims hold.
        is_short: whether its intervals are short enough in as many draws as asked for.
        to_train: number of trials that are not in the ledger.
    """

    design: Design
    claim: str
    halves: np.ndarray
    is_short: bool
    to_train: int

    @property
    def name(self) -> str:
        """The design in words."""
        if self.claim == FURTHER_CLASSES:
            return f"{self.design.blocks} splits × {self.design.seeds or 'any number of'} seeds"
        blocks = ", blocks: classes" if self.claim == ONE_TRAINING_SET else ""
        return f"{self.design.blocks or 'any number of'} seeds{blocks}"

    def format_yaml(self, study: str) -> str:
        """Return the lines that the spec needs."""
        splits = f"splits: {self.design.blocks}, " if self.claim == FURTHER_CLASSES else ""
        seeds = self.design.seeds if splits else self.design.blocks
        lines = f"  studies: {{{study}: {{{splits}seeds: {seeds}}}}}"
        if self.claim == ONE_TRAINING_SET:
            lines += f"\n  report: {{tables: [{{study: {study}, blocks: classes}}]}}"
        return lines


def propose_designs(pilot: Pilot, wanted: float, share: float) -> list[Proposal]:
    """Return the cheapest design of each kind: seeds of one split, classes, splits × seeds.

    A design of infinitely many seeds stands for a kind of which none is good enough.

    Args:
        wanted: largest half-width, on the scale of the runs.
        share: of the draws that must be as short.
    """
    components, family, proposals = pilot.components, pilot.family, list[Proposal]()

    def add(design: Design, claim: str, draw: Callable[[Design], np.ndarray], done: int) -> None:
        halves = draw(design)
        is_short = bool(np.quantile(halves, share) <= wanted)
        if not is_short and claim != ONE_SPLIT:  # what is left of the classes
            design = Design(*((design.blocks, 0) if claim == FURTHER_CLASSES else (0, 1)))
            halves = draw(design)
        to_train = max(0, len(pilot.configs) * design.trainings - done)
        proposals.append(Proposal(design, claim, halves, is_short, to_train))

    def draw_seeds(design: Design) -> np.ndarray:
        known = components if pilot.splits is None else components.forget_splits()
        return draw_half_widths(known, design, family)

    def choose_blocks(draw: Callable[[Design], np.ndarray]) -> Design:
        def is_short(blocks: int) -> bool:
            return bool(np.quantile(draw(Design(blocks)), share) <= wanted)

        return Design(2 + bisect_left(range(2, MOST_BLOCKS), True, key=is_short))

    if pilot.splits is None or components.seed_df:
        done = pilot.done if pilot.splits is None else 0
        add(choose_blocks(draw_seeds), ONE_SPLIT, draw_seeds, done)
    if (classes := pilot.classes) is not None:
        level = family.level ** (1 / (family.comparisons + family.others))

        def draw_classes(design: Design) -> np.ndarray:
            return classes.draw_half_widths(design.blocks, level)

        add(choose_blocks(draw_classes), ONE_TRAINING_SET, draw_classes, pilot.done)
    for factor in SPLIT_FACTORS if pilot.splits and components.seed_df else ():
        blocks = factor * (pilot.splits or 0)
        seeds = choose_seeds(components, family, wanted, MOST_SEEDS, share=share, blocks=blocks)

        def draw_splits(design: Design) -> np.ndarray:
            return draw_half_widths(components, design, family)

        done = pilot.done if factor == 1 else 0
        add(Design(blocks, seeds or MOST_SEEDS), FURTHER_CLASSES, draw_splits, done)
    return proposals


def choose_proposal(proposals: list[Proposal]) -> Proposal | None:
    """Return the cheapest design that is short enough, of those with the strongest claim."""
    strongest = max((CLAIMS.index(proposal.claim) for proposal in proposals), default=0)
    fitting = [p for p in proposals if p.is_short and p.claim == CLAIMS[strongest]]
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
        f"{len(pilot.configs)} rows, at level {format_confidence(pilot.family.level)}"
    )
    rows = [("design", "trainings a row", "hours", "half-width", "holds for")]
    for item in proposals:
        cost = ("", "")
        if trainings := item.design.trainings:
            spent = None if hours is None else item.to_train / len(pilot.configs) * hours
            cost = f"{trainings:,}", "unknown" if spent is None else f"{spent:.2g}"
        halves = format_half_widths(item.halves, scale)
        if not item.is_short:
            is_unsure = np.median(item.halves) * scale <= wanted
            halves += ", perhaps too long" if is_unsure else ", too long"
        rows.append((item.name, *cost, halves, item.claim))
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
    yield (
        f"proposed: {best.to_train} trials to train, enough in {share:.0%} of cases that these "
        "finished trials leave possible. Write into the spec:"
    )
    yield best.format_yaml(pilot.study)
