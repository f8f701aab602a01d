"""A figure that is not ours: a dot for each run."""

from __future__ import annotations

from matplotlib.figure import Figure as Canvas

from reports.figures.figure import DrawnFigure, use_report_style
from reports.frame import Frame
from reports.recipe import Figure


def dots(frame: Frame, recipe: Figure) -> DrawnFigure:
    (study,) = recipe.studies
    cells = frame.select_study(study)
    with use_report_style():
        canvas = Canvas(figsize=(3, 2))
        canvas.add_subplot().plot(
            cells["idx"], cells[recipe.metric], recipe.options.get("marker", "o"), linestyle="none"
        )
    return DrawnFigure(f"dots_{study}", study, recipe.title, "", canvas, tuple(cells["run_id"]))
