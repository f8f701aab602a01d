"""Uncertainty of images, with the most and the least certain ones (IDML, Fig. 6 and 8)."""

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.figures import models

BINS = 40
HISTOGRAM_HEIGHT = 1.6  # inches
DIFFERENCE = "_gap"  # end of the names of measures that are differences, on another scale


class UncertaintyOptions(models.ModelOptions):
    """Options of `uncertainty` (IDML, Fig. 6 and 8).

    images: number of measured images.
    ends: number shown of the most and of the least certain ones.
    """

    images: int = Field(1024, ge=2, le=20000)
    ends: int = Field(8, ge=1, le=16)


@models.register_model_figure(UncertaintyOptions, "uncertainty", apart=True)
def uncertainty(views: models.Views, title: str) -> models.Picture:
    """Draw histograms of uncertainty measures, and images with extremes of the first."""
    model, view = views.readings[0]  # the figure shows one model
    columns = max(len(view["low"]), len(view["high"]))
    board = models.PictureBoard(2, columns, title)
    for row, (end, dash) in enumerate((("low", "-"), ("high", "--"))):
        for column, image in enumerate(view[end]):
            value, frame = image["value"], (plot.COLOURS[row], dash)
            tip = f"{image['class']}: {value:.4g}"
            board.put((row, column), image["picture"], f"{value:.3g}", frame, tip)
    # above the board: histograms of the measures that share one scale
    board.drawing.set_figheight(board.drawing.get_figheight() + HISTOGRAM_HEIGHT)
    heights = [HISTOGRAM_HEIGHT, 2 * (1 + models.LETTERS) * plot.WIDTH / columns]
    grid = board.drawing.add_gridspec(2, 1, height_ratios=heights)
    board.panel.set_subplotspec(grid[1])
    top = board.drawing.add_subplot(grid[0])
    measures = {k: v for k, v in view["values"].items() if not k.endswith(DIFFERENCE)}
    edges = np.histogram_bin_edges(np.concatenate(list(measures.values())), BINS)
    for i, (name, values) in enumerate(measures.items()):
        counts, _ = np.histogram(values, edges)
        label = name.replace("_", " ")
        top.stairs(counts, edges, fill=True, color=plot.COLOURS[i], alpha=0.45, label=label)
    top.set_ylabel("images")
    top.legend(loc="best")
    first = next(iter(view["values"]))
    measure_names = ", ".join(measures).replace("_", " ")
    caption = (
        f"{model.describe()}, {views.protocol}: {len(view['values'][first])} "
        f"{views.options.split} images. Above: {measure_names}. Below: the images "
        f"with the least {first.replace('_', ' ')}, then those with the most."
    )
    return models.Picture(board.drawing, caption, board.spots)
