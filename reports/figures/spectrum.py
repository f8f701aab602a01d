"""How many directions of the embedding space are used (NIR, Fig. 4)."""

from typing import ClassVar

import reports.figures.figure as plot
from reports.figures import models
from reports.tables import labels

MAX_TOOLTIPS = 40  # of a line


class SpectrumOptions(models.ModelOptions):
    """Options of `spectrum`: singular values of the embeddings of a split (NIR, Fig. 4)."""

    every: ClassVar[bool] = True


@models.register_model_figure(SpectrumOptions, "singular values")
def spectrum(views: models.Views, title: str) -> models.Picture:
    """Draw one line per model: the singular values of its embeddings as shares of their sum."""
    drawing, panel = plot.create_single_panel(title)
    spots = []
    for i, (model, view) in enumerate(views.readings):
        shares = [100 * share for share in view["shares"]]
        name = f"{labels.replace_greek_names(model.cell)} (ρ = {view['spectrum']:.3f})"
        panel.plot(range(1, len(shares) + 1), shares, label=name, **plot.select_line_style(i))
        for j in range(0, len(shares), max(1, len(shares) // MAX_TOOLTIPS)):
            text = f"{model.cell}, no. {j + 1}: {shares[j]:.3g} %"
            spots.append(plot.Tooltip(panel, j + 1, shares[j], text))
    panel.set(yscale="log", xlabel="singular value, in descending order")
    panel.set_ylabel("share of their sum (%)")
    panel.grid()
    plot.draw_legend(panel, len(views.readings))
    caption = (
        f"Singular values of the unit embeddings of the {views.options.split} images over their "
        f"sum, {views.protocol}, the first seed of each cell. ρ = KL(U ‖ S) of equal "
        "shares U and these shares S, smaller if the directions are used more evenly."
    )
    return models.Picture(drawing, caption, spots)
