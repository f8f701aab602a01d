"""Rank correlations of promotions: how cells ranked in their source study, and after it."""

import reports.figures.figure as plot
from reports.frame import Frame
from reports.recipe import Figure
from reports.stats.ranks import spearman
from reports.tables import labels
from reports.tables.cells import find_protocol
from reports.tables.promotion import Move, Promotion, find_promotion, list_moves, score_moves
from trainables.words.metrics import display_scale, format_metric_label

ROW = 0.26  # inches


class PromotionOptions(plot.FigureOptions):
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
