"""Curves of embedding spaces: singular values, and distances within and between classes."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from reports.figures.drawn import (
    COLOURS,
    DASHES,
    HEIGHT,
    WIDTH,
    Drawn,
    Spot,
    empty,
    heading,
    legend,
    lined,
    style,
    title_panel,
)
from reports.figures.models.seen import Picture, Views, views
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.labels import greek

PANEL = 1.7  # inches, of one model's histogram


def spectrum(frame: Frame, recipe: Figure) -> Drawn:
    """Singular values of the embeddings over their sum, descending, a line a cell (NIR, Fig. 4)."""
    study, told = recipe.studies[0], views(frame, recipe)
    title = greek(recipe.title) or f"{study}: singular values"
    with style():
        figure = Canvas(figsize=(WIDTH, HEIGHT), layout="constrained")
        panel = figure.add_subplot()
        heading(panel, title)
        spots = _spectra(panel, told)
    caption = (
        f"Singular values of the unit embeddings of the {told.options.split} images over their "
        f"sum, {told.protocol}, the first seed of each cell. ρ = KL(U ‖ S): the smaller, the more "
        "directions are used alike."
    )
    return Picture(figure, caption, tuple(spots)).of(recipe, told, title)


def _spectra(panel: Axes, told: Views) -> list[Spot]:
    if not told.found:
        empty(panel, "nothing was read")
        return []
    spots = []
    for at, (each, view) in enumerate(told.found):
        shares = [100 * share for share in view["shares"]]
        colour, dash = COLOURS[at % len(COLOURS)], DASHES[at % len(DASHES)]
        name = f"{greek(each.cell)} (ρ = {view['spectrum']:.3f})"
        panel.plot(range(1, len(shares) + 1), shares, color=colour, linestyle=dash, label=name)
        step = max(1, len(shares) // 40)
        spots += [
            Spot(
                panel,
                place + 1,
                shares[place],
                f"{each.cell}, no. {place + 1}: {shares[place]:.3g} %",
            )
            for place in range(0, len(shares), step)
        ]
    panel.set_yscale("log")
    panel.set_xlabel("singular value, in descending order")
    panel.set_ylabel("share of their sum (%)")
    lined(panel)
    legend(panel, len(told.found))
    return spots


def distances(frame: Frame, recipe: Figure) -> Drawn:
    """Histograms of distances of pairs of one class and of two, a panel a cell."""
    study, told = recipe.studies[0], views(frame, recipe)
    title = greek(recipe.title) or f"{study}: distances within and between classes"
    count = max(len(told.found), 1)
    with style():
        figure = Canvas(figsize=(WIDTH, 0.7 + PANEL * count), layout="constrained")
        panels = figure.subplots(count, 1, sharex=True, squeeze=False).ravel()
        heading(figure, title)
        spots = _histograms(list(panels), told)
    caption = (
        f"Euclidean distances of unit embeddings of {told.options.split} images, {told.protocol}, "
        "the first seed of each cell: shares of the pairs of one class and of two. Overlap: of the "
        "two histograms in common; a line where a mean is."
    )
    if told.found:
        view = told.found[0][1]
        caption += f" All pairs of {view['images']} images of {view['classes']} classes."
    return Picture(figure, caption, tuple(spots)).of(recipe, told, title)


def _histograms(panels: list[Axes], told: Views) -> list[Spot]:
    if not told.found:
        empty(panels[0], "nothing was read")
        return []
    spots = []
    for panel, (each, view) in zip(panels, told.found, strict=True):
        edges = view["edges"]
        named = (("one class", "intra", COLOURS[0]), ("two classes", "inter", COLOURS[1]))
        for (words, name, colour), mean in zip(named, view["means"], strict=True):
            shares = [100 * share for share in view[name]]
            panel.stairs(shares, edges, fill=True, color=colour, alpha=0.45, label=words)
            panel.axvline(mean, color=colour, linewidth=1.2)
            spots.append(
                Spot(panel, mean, max(shares) / 2, f"{each.cell}, {words}: mean {mean:.4f}")
            )
        title_panel(panel, f"{greek(each.cell)}: overlap {100 * view['overlap']:.1f} %", WIDTH)
        panel.set_ylabel("pairs (%)")
        lined(panel, "y")
    panels[-1].set_xlabel("distance")
    panels[0].legend(loc="upper left")
    return spots
