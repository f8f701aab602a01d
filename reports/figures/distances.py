"""Distances within classes and between them."""

from typing import ClassVar

from pydantic import Field

import reports.figures.figure as plot
from reports.figures import models
from reports.tables import labels

PANEL_HEIGHT = 1.7  # inches, of one model's histogram
KINDS = (("one class", "intra", plot.COLOURS[0]), ("two classes", "inter", plot.COLOURS[1]))


class DistanceOptions(models.ModelOptions):
    """Options of `distances` within classes and between them.

    images: largest number of images, in whole classes.
    """

    every: ClassVar[bool] = True
    images: int = Field(3000, ge=4, le=20000)


@models.register_model_figure(DistanceOptions, "distances within and between classes")
def distances(views: models.Views, title: str) -> models.Picture:
    """Draw two histograms per model: distances between images of one class, and of two classes."""
    count = len(views.readings)
    drawing = plot.create_canvas(plot.WIDTH, 0.7 + PANEL_HEIGHT * count)
    panels = drawing.subplots(count, 1, sharex=True, squeeze=False).ravel()
    plot.draw_heading(drawing, title)
    spots = []
    for panel, (model, view) in zip(panels, views.readings, strict=True):
        for (label, name, colour), mean in zip(KINDS, view["means"], strict=True):
            shares = [100 * share for share in view[name]]
            panel.stairs(shares, view["edges"], fill=True, color=colour, alpha=0.45, label=label)
            panel.axvline(mean, color=colour, linewidth=1.2)
            text = f"{model.cell}, {label}: mean {mean:.4f}"
            spots.append(plot.Tooltip(panel, mean, max(shares) / 2, text))
        head = f"{labels.replace_greek_names(model.cell)}: overlap {100 * view['overlap']:.1f} %"
        plot.set_panel_title(panel, head, plot.WIDTH)
        panel.set_ylabel("pairs (%)")
        panel.grid(axis="y")
    panels[-1].set_xlabel("distance")
    panels[0].legend(loc="upper left")
    view = views.readings[0][1]
    caption = (
        f"Euclidean distances of unit embeddings of {views.options.split} images, "
        f"{views.protocol}, the first seed of each cell: shares of the pairs within a class "
        "and of those between two. Overlap: what both histograms have in common; vertical lines: "
        f"means. All pairs of {view['images']} images of {view['classes']} classes."
    )
    return models.Picture(drawing, caption, spots)
