"""Rank correlations of promotions: how cells ranked in their source study, and after it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes as Panel
from matplotlib.figure import Figure as Canvas
from scipy.stats import rankdata

from reports.errors import ReportError
from reports.figures.drawn import (
    COLOURS,
    WIDTH,
    Drawn,
    Spot,
    empty,
    heading,
    said,
    seeds_text,
    style,
)
from reports.frame import Frame
from reports.recipe import Figure
from reports.stats.describe import summary
from reports.stats.ranks import Correlation, kendall, spearman
from reports.tables.cells import by_seed, gaps, protocol, run_ids
from reports.tables.labels import greek, lower_is_better, metric_label, number, scale, slug
from reports.tables.promoted import SOURCE, ranked_by

ACROSS = 2  # panels
ROW = 0.26  # inches
LEAST = 2  # rows of a panel


@dataclass(frozen=True)
class Move:
    """A cell of the source that was promoted: its values, and its ranks among those that were."""

    cell: str
    before: float
    after: float
    rank: float
    became: float
    n: int


@dataclass(frozen=True)
class Moves:
    """of: the source study; by: what ranked there. rho, tau: of the two ranks; None where fewer
    than three cells have both, or where all of one side are equal."""

    study: str
    of: str
    by: str
    moves: tuple[Move, ...]
    rho: Correlation | None
    tau: Correlation | None


def moves_of(frame: Frame, study: str, metric: str) -> Moves:
    """What became of the cells that a study promoted; the neutral one comes of none.

    Raises:
        ReportError: the study promotes nothing.
    """
    spec = (frame.document.get("studies") or {}).get(study) or {}
    if frame.design(study) != "promote":
        raise ReportError(
            f"report.figures: found {study}, a {frame.design(study)} study; expected one that "
            "promotes"
        )
    source = str(spec["of"])
    by, most = ranked_by(frame, source, spec.get("by"))
    cells = frame.study(study)
    before = frame.study(source) if source in frame.study_order else cells.iloc[:0]
    found: list[tuple[str, float, float, int]] = []
    for _, mine in cells.groupby("cell", sort=False):
        was = str(mine["coords"].iloc[0].get(SOURCE, ""))
        old = summary(list(by_seed(before[before["cell"] == was], by).values()))
        new = summary(list(by_seed(mine, metric).values()))
        if old is not None and new is not None:
            found.append((was, old.mean, new.mean, new.n))
    signs = (1 if most else -1, -1 if lower_is_better(metric) else 1)
    sides = [[signs[0] * old for _, old, _, _ in found], [signs[1] * new for _, _, new, _ in found]]
    ranks = [rankdata([-value for value in side]) for side in sides]
    moves = tuple(
        Move(was, old, new, float(rank), float(became), n)
        for (was, old, new, n), rank, became in zip(found, *ranks, strict=True)
    )
    return Moves(study, source, by, moves, spearman(*sides), kendall(*sides))


def promotions(frame: Frame, recipe: Figure) -> Drawn:
    """A panel a study, a line a cell, from its rank in the source to its rank after promotion.

    Raises:
        ReportError: a study promotes nothing.
    """
    told = [moves_of(frame, study, recipe.metric) for study in recipe.studies]
    title = greek(recipe.title) or "Ranks before and after promotion"
    with style():
        figure, spots = _figure(told, recipe.metric, title)
    counts = [move.n for each in told for move in each.moves]
    caption = (
        f"Left: rank by {' or '.join(dict.fromkeys(metric_label(t.by) for t in told))} in the "
        f"source study among the cells that were promoted; right: rank by "
        f"{metric_label(recipe.metric)} afterwards, {protocol(frame)}, {seeds_text(counts)}; 1 is "
        "the best. Blue rose, orange fell. ρ: Spearman's, τ: Kendall's (τ_b), 1 where both order "
        "the cells alike. Only the best of a source are in it, which are alike there: over all "
        "its cells they may be larger."
    )
    cells = pd.concat([frame.study(study) for study in recipe.studies])
    return Drawn(
        slug(f"promotions_{'_'.join(recipe.studies)}_{recipe.metric}"),
        recipe.studies[0],
        title,
        said(recipe.caption, caption),
        figure,
        run_ids(cells),
        gaps(cells),
        tuple(spots),
    )


def _figure(told: list[Moves], metric: str, title: str) -> tuple[Canvas, list[Spot]]:
    across = min(ACROSS, len(told))
    lines = [told[i : i + across] for i in range(0, len(told), across)]
    rows = [max(LEAST, *(len(each.moves) for each in line)) for line in lines]
    figure = Canvas(figsize=(WIDTH, 0.4 + sum(0.55 + ROW * r for r in rows)), layout="constrained")
    panels = figure.subplots(len(lines), across, squeeze=False, height_ratios=rows)
    spots: list[Spot] = []
    for line, beside, most in zip(lines, panels, rows, strict=True):
        for panel in beside:
            panel.set_axis_off()
        for panel, each in zip(beside, line, strict=False):
            spots += _panel(panel, each, metric, most)
    heading(figure, title)
    return figure, spots


def _panel(panel: Panel, told: Moves, metric: str, rows: int) -> list[Spot]:
    panel.set_title(f"{told.of} → {told.study}\n{_agreement(told)}", loc="left")
    if not told.moves:
        empty(panel, "no promoted cell is finished")
        return []
    panel.set_xlim(-0.6, 1.6)
    panel.set_ylim(rows + 0.5, 0.5)
    factors = scale(told.by), scale(metric)
    spots = []
    for move in told.moves:
        colour = COLOURS[7]
        if move.became != move.rank:
            colour = COLOURS[0] if move.became < move.rank else COLOURS[1]
        panel.plot([0, 1], [move.rank, move.became], "-o", color=colour, markersize=4)
        old, new = number(move.before * factors[0], 2), number(move.after * factors[1], 2)
        panel.text(-0.06, move.rank, f"{move.cell}  {old}", ha="right", va="center")
        panel.text(1.06, move.became, new, ha="left", va="center")
        words = f"{move.cell}: rank {move.rank:g} ({old}) → rank {move.became:g} ({new})"
        spots += [Spot(panel, 0, move.rank, words), Spot(panel, 1, move.became, words)]
    return spots


def _agreement(told: Moves) -> str:
    if told.rho is None or told.tau is None:
        return f"{len(told.moves)} cells: no correlation"
    return f"ρ = {number(told.rho.value, 2)}, τ = {number(told.tau.value, 2)}, {told.rho.n} cells"
