"""What figures share: letters of one size, legends that hide nothing, marks with values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from reports.figures.figure import MAX_TOOLTIPS, TEXT, DrawnFigure, Tooltip, use_report_style
from reports.recipe import Figure, Heatmap, Table
from tests.reports.made import METRIC, draw_part, drawer, frame

SPACE = {"method.alpha": {"low": 1, "high": 4}, "method.beta": {"low": 1, "high": 2}}
POINTS = [{"method.alpha": a, "method.beta": b} for a in (1, 2, 3, 4) for b in (1, 2)]


def value(at: dict[str, Any], seed: int) -> float:
    return 0.5 + 0.01 * at["method.alpha"] + 0.003 * seed


def test_letters_have_one_size_and_marks_lie_within_their_pictures(tmp_path: Path) -> None:
    search = frame("search", POINTS, value, study={"space": SPACE})
    grid = frame("grid", POINTS, value)
    drawings = [
        draw_part(search, tables=[Table(kind="search", study="s")]),
        draw_part(grid, heatmaps=[Heatmap(study="s", x="method.alpha", y="method.beta")]),
    ]
    for found, kind in ((search, "slices"), (grid, "interactions")):
        drawings.append(drawer(kind)(found, Figure(kind=kind, studies=("s",), metric=METRIC)))
    for drawn in drawings:
        letters = [text for text in drawn.figure.findobj(Text) if text.get_text().strip()]
        assert {text.get_fontsize() for text in letters} == {TEXT}, drawn.key
        drawn.save_files(tmp_path)
        places = drawn.locate_spots()
        assert len(places) == len(drawn.spots) > 0
        assert all(0 < x < 1 and 0 < y < 1 and text for x, y, text in places), drawn.key


def test_a_mark_is_where_the_picture_has_it(tmp_path: Path) -> None:
    with use_report_style():
        figure = Canvas(figsize=(4, 2))
        axes = figure.add_axes((0.25, 0.2, 0.5, 0.6))
        axes.set_xlim(0, 10)
        axes.set_ylim(0, 1)
    spots = (Tooltip(axes, 0, 0, "corner"), Tooltip(axes, 5, 1, "top"))
    drawn = DrawnFigure("d", "s", "", "", figure, (), spots)
    drawn.save_files(tmp_path)
    assert drawn.locate_spots() == [
        (pytest.approx(0.25), pytest.approx(0.8), spots[0]),
        (pytest.approx(0.5), pytest.approx(0.2), spots[1]),
    ]
    many = DrawnFigure("d", "s", "", "", figure, (), spots[:1] * (MAX_TOOLTIPS + 1))
    assert many.locate_spots() == []
