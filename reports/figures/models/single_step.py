"""What one gradient step does to a dark image and to its class (IDML, Fig. 7)."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.offsetbox import AnnotationBbox, OffsetImage

from reports.figures.drawn import COLOURS, WIDTH, Drawn, Spot, empty, heading, style, title_panel
from reports.figures.models.seen import Picture, Views, pixels, views
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.labels import greek

ACROSS = 2  # panels
SMALL = 0.4  # of a picture's own size
GREY = "#8a8a8a"
NAMED = (("dark image", COLOURS[1]), ("its positive", COLOURS[0]))


def single_step(frame: Frame, recipe: Figure) -> Drawn:
    """A panel a cell: an arrow an image from its embedding before the step to that after it."""
    study, told = recipe.studies[0], views(frame, recipe)
    title = greek(recipe.title) or f"{study}: one gradient step"
    with style():
        figure, spots = _figure(told, title)
    caption = "Nothing was read."
    if told.found:
        view = told.found[0][1]
        options = view["options"]
        caption = (
            f"t-SNE of the embeddings of {len(view['label'])} training images before and after one "
            f"gradient step at rate {options['rate']:g} of the trained model, the first seed of "
            f"each cell; the first image is shown with {100 * options['dark']:g} % of its "
            "brightness. Euclidean distance of unit embeddings from it to its positive, before and "
            "after:"
        )
        caption += ";".join(
            f" {each.cell} {read['distances'][0]:.4f} to {read['distances'][1]:.4f}"
            for each, read in told.found
        )
        caption += "."
    return Picture(figure, caption, spots, apart=True).of(recipe, told, title)


def _figure(told: Views, title: str) -> tuple[Canvas, tuple[Spot, ...]]:
    count = max(len(told.found), 1)
    across = min(ACROSS, count)
    down = math.ceil(count / across)
    side = WIDTH / across
    figure = Canvas(figsize=(WIDTH, 0.4 + down * (side + 0.35)), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    heading(figure, title)
    for panel in panels:
        panel.set_xticks([])
        panel.set_yticks([])
    for panel in panels[count:]:
        panel.set_axis_off()
    if not told.found:
        empty(panels[0], "nothing was read")
        return figure, ()
    spots: list[Spot] = []
    for panel, (each, view) in zip(panels, told.found, strict=False):
        before, after = view["distances"]
        title_panel(panel, f"{greek(each.cell)}: {before:.3f} to {after:.3f}", side)
        for at, (start, end) in enumerate(zip(view["before"], view["after"], strict=True)):
            name, colour = NAMED[at] if at < 2 else ("", GREY)
            _arrow(panel, start, end, colour)
            words = name or view["classes"][view["label"][at]]
            far = f"{each.cell}, {words}: moved by {view['moved'][at]:.4f}"
            spots.append(Spot(panel, end[0], end[1], far))
        for (_, colour), place, picture in zip(
            NAMED, view["before"][:2], view["pictures"], strict=True
        ):
            image = OffsetImage(pixels(picture), zoom=SMALL)
            box = AnnotationBbox(
                image,
                place,
                xybox=(0, 18),
                boxcoords="offset points",
                pad=0.1,
                bboxprops={"edgecolor": colour},
            )
            panel.add_artist(box)
        panel.margins(0.12)
    return figure, tuple(spots)


def _arrow(panel: Axes, start: list[float], end: list[float], colour: str) -> None:
    panel.plot(*start, "o", color=colour, markersize=4, markerfacecolor="white")
    panel.plot(*end, "o", color=colour, markersize=4)
    panel.plot([start[0], end[0]], [start[1], end[1]], color=colour, linewidth=1.0)
