"""Rank correlations of promotions: how cells ranked in their source study, and after it."""

from __future__ import annotations

from dataclasses import dataclass

from reports.figures.drawn import (
    COLOURS,
    WIDTH,
    Axes,
    Canvas,
    Drawn,
    FigureOptions,
    Spot,
    canvas,
    empty,
    figure,
    finish,
    heading,
    seeds_text,
)
from reports.frame import Frame
from reports.recipe import Figure
from reports.stats.describe import summary
from reports.stats.ranks import Correlation, kendall, spearman
from reports.tables.cells import by_seed, protocol
from reports.tables.labels import greek, metric_label, number, scale
from reports.tables.promoted import SOURCE, promotion_of, rank_signs

ACROSS = 2  # panels
ROW = 0.26  # inches
LEAST = 2  # rows of a panel


class PromotionOptions(FigureOptions):
    """Of `promotions`: ranks in the source study against ranks after promotion."""

    shown_as = "promoted"
    several = True


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
    """source: the source study; by: what ranked there. rho, tau: of the two ranks; None where fewer
    than three cells have both, or where all of one side are equal."""

    study: str
    source: str
    by: str
    moves: tuple[Move, ...]
    rho: Correlation | None
    tau: Correlation | None


def moves_of(frame: Frame, study: str, metric: str) -> Moves:
    """Return what became of the cells that a study promoted; the neutral one comes of none.

    Raises:
        ReportError: the study promotes nothing.
    """
    from scipy.stats import rankdata

    promotion = promotion_of(frame, study, "report.figures")
    known: list[tuple[str, float, float, int]] = []
    for _, mine in frame.study(study).groupby("cell", sort=False):
        was = str(mine["coords"].iloc[0].get(SOURCE, ""))
        old = summary(list(promotion.values_before(was).values()))
        new = summary(list(by_seed(mine, metric).values()))
        if old is not None and new is not None:
            known.append((was, old.mean, new.mean, new.n))
    signs = rank_signs(promotion, metric)
    sides = [[signs[0] * old for _, old, _, _ in known], [signs[1] * new for _, _, new, _ in known]]
    ranks = [rankdata([-value for value in side]) for side in sides]
    moves = tuple(
        Move(was, old, new, float(rank), float(became), n)
        for (was, old, new, n), rank, became in zip(known, *ranks, strict=True)
    )
    return Moves(study, promotion.source, promotion.by, moves, spearman(*sides), kendall(*sides))


@figure(PromotionOptions)
def promotions(frame: Frame, recipe: Figure, _: PromotionOptions) -> Drawn:
    """Draw a panel a study, a line a cell, from its rank in the source to that after promotion.

    Raises:
        ReportError: a study promotes nothing.
    """
    import pandas as pd

    every = [moves_of(frame, study, recipe.metric) for study in recipe.studies]
    title = greek(recipe.title) or "Ranks before and after promotion"
    drawing, spots = _draw(every, recipe.metric, title)
    counts = [move.n for each in every for move in each.moves]
    caption = (
        f"Left: rank by {' or '.join(dict.fromkeys(metric_label(each.by) for each in every))} in "
        f"the source study among the cells that were promoted; right: rank by "
        f"{metric_label(recipe.metric)} afterwards, {protocol(frame)}, {seeds_text(counts)}; 1 is "
        "the best. Blue rose, orange fell. ρ: Spearman's, τ: Kendall's (τ_b), 1 where both order "
        "the cells alike. Only the best of a source are in it, which are alike there: over all "
        "its cells they may be larger."
    )
    cells = pd.concat([frame.study(study) for study in recipe.studies])
    key = f"promotions_{'_'.join(recipe.studies)}_{recipe.metric}"
    return finish(recipe, cells, drawing, spots, title=title, caption=caption, key=key)


def _draw(every: list[Moves], metric: str, title: str) -> tuple[Canvas, list[Spot]]:
    across = min(ACROSS, len(every))
    lines = [every[i : i + across] for i in range(0, len(every), across)]
    rows = [max(LEAST, *(len(each.moves) for each in line)) for line in lines]
    drawing = canvas(WIDTH, 0.4 + sum(0.55 + ROW * r for r in rows))
    panels = drawing.subplots(len(lines), across, squeeze=False, height_ratios=rows)
    spots: list[Spot] = []
    for line, in_row, most in zip(lines, panels, rows, strict=True):
        for panel in in_row:
            panel.set_axis_off()
        for panel, each in zip(in_row, line, strict=False):
            spots += _panel(panel, each, metric, most)
    heading(drawing, title)
    return drawing, spots


def _panel(panel: Axes, moves: Moves, metric: str, rows: int) -> list[Spot]:
    panel.set_title(f"{moves.source} → {moves.study}\n{_agreement(moves)}", loc="left")
    if not moves.moves:
        empty(panel, "no promoted cell is finished")
        return []
    panel.set_xlim(-0.6, 1.6)
    panel.set_ylim(rows + 0.5, 0.5)
    factors = scale(moves.by), scale(metric)
    spots = []
    for move in moves.moves:
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


def _agreement(moves: Moves) -> str:
    if moves.rho is None or moves.tau is None:
        return f"{len(moves.moves)} cells: no correlation"
    rho, tau = number(moves.rho.value, 2), number(moves.tau.value, 2)
    return f"ρ = {rho}, τ = {tau}, {moves.rho.n} cells"
