"""A figure that is not ours: a dot for each run."""

from __future__ import annotations

from matplotlib.figure import Figure as Canvas

from reports.figures.drawn import Drawn, style
from reports.frame import Frame
from reports.recipe import Figure


def dots(frame: Frame, recipe: Figure) -> Drawn:
    (study,) = recipe.studies
    cells = frame.study(study)
    with style():
        canvas = Canvas(figsize=(3, 2))
        canvas.add_subplot().plot(
            cells["idx"], cells[recipe.metric], recipe.options.get("marker", "o"), linestyle="none"
        )
    return Drawn(f"dots_{study}", study, recipe.title, "", canvas, tuple(cells["run_id"]))
