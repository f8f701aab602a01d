"""Figures of trained models: which are shown, what is drawn of them, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.figures.models import NOT_READ, ModelOptions, list_requested_views, select_models
from reports.frame import OTHER, Frame
from reports.kinds import FIGURES, find_figure_options
from reports.recipe import Figure, Recipe
from tests.reports.made import METRIC, drawer, frame
from tests.reports.views_read import READ

CELLS = ["plain", "one", "two"]
MEANS = {"plain": 0.4, "one": 0.6, "two": 0.5}
KINDS = [kind for kind in FIGURES if issubclass(find_figure_options(kind), ModelOptions)]


def value(coords: dict[str, Any], seed: int) -> float | None:
    lost = coords["v"] == "plain" and seed == 0
    return None if lost else MEANS[coords["v"]] + 0.01 * seed


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Frame:
    """Read of all runs but those of `two`."""

    def view(self: Frame, run_id: str, name: str) -> dict[str, Any] | None:
        return None if run_id.startswith("run2") else READ[name.rpartition("-")[0]]

    monkeypatch.setattr(Frame, "load_model_view", view)
    return frame("compare", [{"v": name} for name in CELLS], value, seeds=2, names=CELLS)


def recipe(kind: str, **options: Any) -> Figure:
    return Figure(kind=kind, studies=("s",), metric=METRIC, options=options)


def models(found: Frame, figure: Figure) -> list[tuple[str, int]]:
    options = find_figure_options(figure.kind).model_validate(figure.options)
    return [(each.cell, each.seed) for each in select_models(found, figure, options)]


def test_the_best_is_shown_or_those_that_are_asked_for(made: Frame) -> None:
    assert models(made, recipe("gallery")) == [("one", 0)]
    assert models(made, recipe("gallery", cells=["two", "plain"])) == [("two", 0), ("plain", 1)]
    assert models(made, recipe("spectrum")) == [("plain", 1), ("one", 0), ("two", 0)]


def test_what_is_asked_for_twice_is_read_once(made: Frame) -> None:
    figures = (recipe("gallery"), recipe("gallery", cells=["one"]), recipe("gallery", nearest=2))
    every = [*list_requested_views(made, Recipe(figures=figures))]
    assert [each.run_id for each in every] == ["run1-0", "run1-0"]
    assert [each.options["nearest"] for each in every] == [8, 2]
    assert every[0].name != every[1].name and every[0].name.startswith("gallery-")


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_drawn(made: Frame, kind: str, tmp_path: Path) -> None:
    drawn = drawer(kind)(made, recipe(kind, cells=["one"]))
    paths = drawn.save_files(tmp_path)
    assert drawn.spots and all(0 <= x <= 1 and 0 <= y <= 1 for x, y, _ in drawn.locate_spots())
    assert paths["svg"].stat().st_size > 2000 and drawn.run_ids == ("run1-0",)
    assert "Nothing was read" not in drawn.caption
    lost = drawer(kind)(made, recipe(kind, cells=["two"]))
    assert not lost.spots
    assert lost.caption.endswith(f"two, seed 0: {NOT_READ}.")


def test_each_tells_what_was_read(made: Frame) -> None:
    def draw(kind: str, **options: Any) -> tuple[Any, list[str]]:
        drawn = drawer(kind)(made, recipe(kind, **options))
        return drawn, [spot.text for spot in drawn.spots]

    one: dict[str, Any] = {"cells": ["one"]}
    drawn, marks = draw("gallery")
    assert marks[:2] == ["a: the nearest image of its class is no. 1", "1: b, 0.5000"]
    assert "one, seed 0, the best by MAP@R" in drawn.caption
    assert draw("affinity", **one)[1][0] == "one: a, b: 0.500"
    assert draw("grad_cam")[1] == [
        "a",
        "a: metric",
        "a: split, which does not depend on this image",
    ]
    drawn, marks = draw("class_sizes", **one)
    assert drawn.caption.endswith(" one: 37.5, 100.0, 80.0 %.")
    assert marks[1] == "one, b: 4 images, 25.0 %"


def test_uncertainty_names_the_histograms_that_it_draws(made: Frame) -> None:
    drawn = drawer("uncertainty")(made, recipe("uncertainty"))
    (legend,) = [axes.get_legend() for axes in drawn.figure.axes if axes.get_legend()]
    named = drawn.caption.partition("Above: ")[2].partition(". Below")[0]
    assert named == ", ".join(text.get_text() for text in legend.get_texts())


def test_a_row_whose_best_is_the_baseline_shows_its_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the baseline would be shown twice, under two names."""
    names = ["plain", "ddml", f"ddml{OTHER}"]
    coords = [{"variant": name} for name in names]
    found = frame("compare", coords, lambda at, seed: 0.5, seeds=1, names=names)
    monkeypatch.setattr(Frame, "load_model_view", lambda self, run_id, name: READ["gallery"])
    figure = recipe("gallery", cells=["ddml"])
    assert models(found, figure) == [(names[2], 0)]
    told = "the best configuration with the method on, because the best of ddml is the baseline"
    assert told in drawer("gallery")(found, figure).caption
    assert models(found, recipe("spectrum")) == [("plain", 0), (names[2], 0)]
