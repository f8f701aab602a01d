"""Ranks of methods over several data sets and losses, and of cells before and after promotion.

A critical-difference diagram shows the mean rank of each level of one factor on a line, 1 being the
best; a bar joins levels whose ranks do not differ by Nemenyi's test (Demšar, JMLR 7, 2006,
Figure 1). A block is a combination of all other coordinates, and its values are means over seeds:
seeds are repeats of one block, and no blocks of their own.
"""

from collections.abc import Mapping, Sequence

import reports.figures.figure as plot
from reports.frame import DataFrame, Frame
from reports.recipe import Figure, FigureOptions
from reports.stats.describe import NEMENYI, MeanRanks, rank_methods, spearman
from reports.tables import labels
from reports.tables.cells import NEUTRAL, describe_metric, find_protocol, find_sign, summarize_cells
from reports.tables.search import Move, Promotion, find_promotion, list_moves, score_moves
from trainables.words.metrics import display_scale, format_metric_label

Block = tuple[tuple[str, str], ...]  # the other coordinates, as (name, level)


class RanksOptions(FigureOptions):
    """Options of a critical-difference diagram.

    factor: the factor whose levels are ranked within each combination of the other coordinates.
    without: levels that are left out.
    """

    factor: str
    without: tuple[str, ...] = ()

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        return {"factor": (self.factor,)}


@plot.figure(RanksOptions)
def critical_difference(frame: Frame, recipe: Figure, options: RanksOptions) -> plot.DrawnFigure:
    """Draw the mean ranks of a factor's levels, and bars that join levels that do not differ.

    Levels are ranked in each block, a combination of the levels of all other coordinates. A block
    that lacks a level, because this combination is refused or its run is missing, is left out, and
    the caption names it; `options.without` leaves the level out instead.
    """
    study, factor, metric = recipe.studies[0], options.factor, recipe.metric
    cells = frame.select_combinations(study)
    cell_levels = [labels.format_level(coords.get(factor)) for coords in cells["coords"]]
    cells = cells[[level not in options.without for level in cell_levels]]
    # rank the levels within complete blocks whose values are not all the same
    levels, blocks = collect_blocks(cells, factor, metric)
    complete = {key: values for key, values in blocks.items() if len(values) == len(levels)}
    ranked = [values for values in complete.values() if len({*values.values()}) > 1]
    rows = [[values[level] for level in levels] for values in ranked]
    is_lower = find_sign(frame, study, metric) < 0
    ranking = rank_methods(rows, lower_is_better=is_lower) if rows else None
    # caption
    caption = f"{describe_metric(frame, metric)}: "
    if ranking is None:
        caption += "fewer than two blocks have all levels with different values: nothing to rank."
    else:
        caption += (
            f"mean rank over {ranking.blocks} blocks, means over {plot.name_units([cells])}; "
            f"1 is the best. A bar joins what Nemenyi's test does not tell apart at {NEMENYI:g} "
            f"(critical difference {ranking.critical:.2f}). p of Friedman's test, Iman and "
            f"Davenport's form: {labels.format_p(ranking.p)}."
        )
    if tied := len(complete) - len(ranked):
        caption += f" Blocks left out in which all levels have the same value: {tied}."
    if options.without:
        caption += f" Left out: {', '.join(options.without)}."
    if lacking := [", ".join(dict(block).values()) for block in blocks if block not in complete]:
        caption += f" Blocks left out for lacking a level: {'; '.join(lacking)}."
    title = labels.replace_greek_names(recipe.title)
    title = title or f"Mean ranks by {format_metric_label(metric)}"
    drawing = _draw_rank_diagram(levels, ranking, title)
    key = f"ranks_{study}_{factor}_{metric}"
    return plot.build_figure(recipe, cells, drawing, title=title, caption=caption, key=key)


def collect_blocks(
    cells: DataFrame, factor: str, metric: str
) -> tuple[list[str], dict[Block, dict[str, float]]]:
    """Return the levels of a factor, and block → level → mean over seeds, for cells with results.

    A block is a combination of the levels of all other coordinates except NEUTRAL.
    """
    levels: dict[str, None] = {}
    blocks: dict[Block, dict[str, float]] = {}
    means, first_rows = summarize_cells(cells, metric), cells.drop_duplicates("cell")
    for cell, settings in zip(first_rows["cell"], first_rows["coords"], strict=True):
        coords = {k: labels.format_level(v) for k, v in settings.items() if k != NEUTRAL}
        if (level := coords.pop(factor, None)) is None:
            continue  # the cell has no level of the factor
        levels.setdefault(level)  # the keys are an ordered set
        block = blocks.setdefault(tuple(coords.items()), {})
        if cell in means:
            block[level] = means[cell].mean
    return list(levels), blocks


def _draw_rank_diagram(levels: Sequence[str], ranking: MeanRanks | None, title: str) -> plot.Canvas:
    """Draw an axis of mean ranks, the critical difference, and each level's name at its rank.

    A bar joins levels whose ranks differ by less than the critical difference.
    """
    left_count = (len(levels) + 1) // 2  # names at the left side
    drawing, axes = plot.create_single_panel(title, 1.5 + 0.24 * left_count)
    axes.set_axis_off()
    if ranking is None:
        plot.draw_empty_message(axes, "nothing to rank")
        return drawing
    k, bars = len(levels), len(ranking.groups)
    axes.set(xlim=(1 - 0.45 * k, k + 0.45 * k), ylim=(-(1.2 + 0.35 * bars + left_count), 1.6))
    # the axis of ranks, and the critical difference above it
    axes.plot([1, k], [0, 0], color="black", linewidth=1)
    for tick in range(1, k + 1):
        axes.plot([tick, tick], [0, 0.18], color="black", linewidth=1)
        axes.text(tick, 0.28, str(tick), ha="center", va="bottom")
    end = 1 + min(ranking.critical, k - 1)  # never beyond the axis
    axes.plot([1, end], [1.25, 1.25], color="black", linewidth=1.6)
    axes.text(end, 1.25, f"  CD = {ranking.critical:.2f}", ha="left", va="center")
    # a bar for each group of levels that do not differ
    ordered = [ranking.ranks[column] for column in ranking.order]
    for i, (first, last) in enumerate(ranking.groups, 1):
        ends, bar_y = [ordered[first] - 0.04, ordered[last] + 0.04], -0.35 * i
        axes.plot(ends, [bar_y, bar_y], color=plot.COLOURS[0], linewidth=3.5, solid_capstyle="butt")
    # names: the better half at the left, the others at the right, with lines to their ranks
    top = -(0.9 + 0.35 * bars)
    for i, (column, rank) in enumerate(zip(ranking.order, ordered, strict=True)):
        is_left = i < left_count
        x, y = (1 - 0.05 * k, top - i) if is_left else (k + 0.05 * k, top - (k - 1 - i))
        axes.plot([rank, rank, x], [0, y, y], color="#7F7F7F", linewidth=0.8)
        name = f" {levels[column]} ({rank:.2f}) "
        axes.text(x, y, name, ha="right" if is_left else "left", va="center")
    return drawing


ROW = 0.26  # inches


class PromotionOptions(FigureOptions):
    """Options of `promotions`: ranks in the source study against ranks after promotion."""

    shown_as = "promoted"
    several = True


@plot.figure(PromotionOptions)
def promotions(frame: Frame, recipe: Figure, _: PromotionOptions) -> plot.DrawnFigure:
    """Draw one panel per study: a line joins a cell's ranks before and after promotion.

    Promotion trains the best cells of a source study again. A cell without a result before or after
    promotion is left out, and so is the cell with the method off, which was not promoted.
    """
    import pandas as pd

    studies = {name: frame.select_study(name) for name in recipe.studies}
    metric = recipe.metric
    origins = {name: find_promotion(frame, name, metric, "report.figures") for name in studies}
    moves = {name: list_moves(cells, origins[name], metric) for name, cells in studies.items()}
    title = labels.replace_greek_names(recipe.title) or "Ranks before and after promotion"
    rows = max(2, *map(len, moves.values()))
    size = (plot.WIDTH, 0.4, 0.55 + ROW * rows)
    drawing, panels = plot.create_panel_grid(len(moves), 2, title, size)
    spots: list[plot.Tooltip] = []
    for panel, study in zip(panels, moves, strict=True):
        panel.set_axis_off()
        panel.set_ylim(rows + 0.5, 0.5)
        spots += _draw_promotion_panel(panel, study, origins[study], moves[study], metric)
    counts = [n for study_moves in moves.values() for *_, n in study_moves]
    ranked_by = " or ".join(
        dict.fromkeys(format_metric_label(promotion.by) for promotion in origins.values())
    )
    units = plot.name_units(studies.values())
    caption = (
        f"Left: rank by {ranked_by} in the source study among the cells that were promoted; right: "
        f"rank by {format_metric_label(metric)} afterwards, {find_protocol(frame)}, "
        f"{plot.format_counts(counts, units)}; 1 is the best. Blue rose, orange fell. ρ: "
        "Spearman's rank correlation, 1 if both studies order the cells alike. Only the best cells "
        "of a source study are compared, whose values are close: over all its cells ρ may be "
        "larger."
    )
    cells = pd.concat(studies.values())
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption)


def _draw_promotion_panel(
    panel: plot.Axes, study: str, promotion: Promotion, moves: list[Move], metric: str
) -> list[plot.Tooltip]:
    """Draw a line per promoted cell from old to new rank, with ρ in the title; return tooltips."""
    from scipy.stats import rankdata

    sides = score_moves(moves, promotion)
    rho = spearman(*sides)
    agreement = f"{len(moves)} cells: no correlation"
    if rho is not None:
        agreement = f"ρ = {labels.format_number(rho, 2)}, {len(moves)} cells"
    panel.set_title(f"{promotion.source} → {study}\n{agreement}")
    if not moves:
        plot.draw_empty_message(panel, "no promoted cell is finished")
        return []
    panel.set_xlim(-0.6, 1.6)
    spots = []
    ranks = [rankdata([-score for score in side]).tolist() for side in sides]
    for (cell, before, after, _), old_rank, new_rank in zip(moves, *ranks, strict=True):
        colour = plot.COLOURS[7]  # grey for an equal rank, blue for a better, orange for a worse
        if new_rank != old_rank:
            colour = plot.COLOURS[0] if new_rank < old_rank else plot.COLOURS[1]
        panel.plot([0, 1], [old_rank, new_rank], "-o", color=colour)
        old = labels.format_number(before * display_scale(promotion.by), 2)
        new = labels.format_number(after * display_scale(metric), 2)
        panel.text(-0.06, old_rank, f"{cell}  {old}", ha="right", va="center")
        panel.text(1.06, new_rank, new, ha="left", va="center")
        text = f"{cell}: rank {old_rank:g} ({old}) → rank {new_rank:g} ({new})"
        spots += [plot.Tooltip(panel, 0, old_rank, text), plot.Tooltip(panel, 1, new_rank, text)]
    return spots
