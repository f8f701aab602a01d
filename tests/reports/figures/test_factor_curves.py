"""Curves over a factor: the right means and intervals, the right lines, the right axis."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from scipy import stats as scipy_stats

from reports.compile import compile_report
from reports.errors import ReportError
from reports.figures.factor_curves import axis_kind, factor_curves, lines_of
from reports.frame import Frame, load
from reports.recipe import FactorCurves, Recipe

METRIC = "val/map_at_r"


@pytest.fixture(scope="module")
def frame(finished: Any) -> Frame:
    return load(finished.uri, finished.sweep_id)


def study(coords: list[dict[str, Any]], values: list[list[float]]) -> pd.DataFrame:
    """Cells as a frame has them: a row per cell and seed."""
    rows = [
        {
            "study": "s",
            "cell": str(c),
            "idx": i,
            "seed": seed,
            "fold": None,
            "coords": c,
            "status": "done",
            "reason": "",
            "run_id": f"{i}-{seed}",
            METRIC: value,
        }
        for i, (c, found) in enumerate(zip(coords, values, strict=True))
        for seed, value in enumerate(found)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("interval", ["t", "sd", "bootstrap"])
def test_a_level_s_mean_and_interval(interval: Any) -> None:
    values = [0.5, 0.54, 0.58, 0.51]
    cells = study([{"g": 1.0}, {"g": 0.1}], [values, [0.4]])
    (line,) = lines_of(cells, FactorCurves(studies=("s",), x="g", interval=interval))
    assert line.x == (0.1, 1.0) and line.n == (1, 4) and line.label == ""
    assert math.isnan(line.low[0]) and math.isnan(line.high[0])  # one seed: no interval
    x = 100 * np.array(values)
    assert line.mean == pytest.approx((40.0, x.mean()))
    if interval == "t":
        low, high = scipy_stats.t.interval(0.95, 3, x.mean(), scipy_stats.sem(x))
    elif interval == "sd":
        low, high = x.mean() - x.std(ddof=1), x.mean() + x.std(ddof=1)
    else:
        found = scipy_stats.bootstrap(
            (x,), np.mean, method="percentile", rng=np.random.default_rng(0)
        )
        low, high = found.confidence_interval
    tolerance = {"abs": 0.15} if interval == "bootstrap" else {"rel": 1e-12}
    assert (line.low[1], line.high[1]) == pytest.approx((low, high), **tolerance)


def test_a_grid_has_a_line_per_level_of_the_other_factor(frame: Frame) -> None:
    found = frame.study("grid")
    lines = lines_of(found, FactorCurves(studies=("grid",), x="method.gamma"))
    assert [line.label for line in lines] == ["α = 0.001", "α = 0.01", "α = 0.1"]
    for line, alpha in zip(lines, (1e-3, 1e-2, 1e-1), strict=True):
        for x, mean in zip(line.x, line.mean, strict=True):
            here = found[(found["method.alpha"] == alpha) & (found["method.gamma"] == x)]
            assert mean == pytest.approx(100 * here[METRIC].mean())


def test_one_factor_studies_give_the_factor_s_own_arm() -> None:
    full = [{"a": 1, "b": 5}, {"a": 2, "b": 5}, {"a": 3, "b": 5}, {"a": 2, "b": 4}]
    recipe = FactorCurves(studies=("s",), x="a")
    (line,) = lines_of(study(full, [[0.1], [0.2], [0.3], [0.9]]), recipe)
    assert line.x == (1, 2, 3) and line.mean == pytest.approx((10, 20, 30)) and line.label == ""


def test_at_holds_the_other_factor(frame: Frame) -> None:
    recipe = FactorCurves(studies=("grid",), x="method.gamma", at={"method.alpha": 0.01})
    drawn = factor_curves(frame, recipe)
    axes = drawn.figure.axes[0]
    assert len(axes.containers) == 1 and axes.get_legend() is None
    assert axes.get_xscale() == "log" and "α = 0.01" in drawn.caption
    assert "95 % t interval" in drawn.caption and "n = 2 seeds" in drawn.caption
    with pytest.raises(ReportError, match=r"no cell of grid .* method\.alpha"):
        factor_curves(frame, FactorCurves(studies=("grid",), x="method.beta"))


@pytest.mark.parametrize(
    ("levels", "log", "kind"),
    [
        ([0.1, 0.2, 0.3], None, "linear"),
        ([1, 2, 3, 20], None, "log"),
        ([1e-7, 1e-5, 1e-3], None, "log"),
        ([0, 0.01, 0.1, 1], None, "symlog"),
        ([0, 0.25, 0.5, 0.75, 1], None, "linear"),
        ([-1, 0.1, 1, 10, 100], None, "linear"),
        ([0.1, 1], None, "linear"),
        ([0.1, 1], True, "log"),
        ([1e-3, 1e-2, 1e-1], False, "linear"),
        (["a", "b"], None, "words"),
        (["on", 1], True, "words"),
        ([], None, "linear"),
    ],
)
def test_axis_follows_the_levels(levels: list[Any], log: bool | None, kind: str) -> None:
    assert axis_kind(levels, log) == kind


def test_every_kind_of_axis_is_drawn_and_one_seed_has_no_bar(frame: Frame) -> None:
    words = factor_curves(frame, FactorCurves(studies=("tuned",), x="variant")).figure.axes[0]
    assert [t.get_text() for t in words.get_xticklabels()] == ["DDML (+NormSoftmax)", "NormSoftmax"]
    assert words.containers[0].lines[0].get_linestyle() == "None"
    one = FactorCurves(studies=("grid",), x="method.alpha", at={"method.gamma": 1e-3}, log=False)
    bars = factor_curves(frame, one).figure.axes[0].containers[0].lines[2][0].get_segments()
    assert (
        sum(len(bar) == 2 and bool(np.isfinite(bar).all()) for bar in bars) == 2
    )  # the last cell has one seed


def test_in_a_report(sweep: Any, tmp_path: Path) -> None:
    part = {"studies": ["grid"], "x": "method.gamma", "title": "Fig. 5"}
    sweep.finish(sweep.plan(seeds=1, report={"factor_curves": [part]})[:20])
    sweep.track()
    report = compile_report(sweep.uri, sweep.sweep_id, tmp_path, log_to_parent=False)
    key = "factor_grid_method_gamma_val_map_at_r"
    assert {f"{key}.png", f"{key}.svg"} <= set(report.paths)
    assert f'id="{key}"' in report.html.read_text()
    assert report.frame.recipe.studies() == {"grid": "report.factor_curves.0.studies.0"}


def test_nothing_finished_gives_an_empty_figure(sweep: Any, tmp_path: Path) -> None:
    sweep.plan(seeds=1, report={"factor_curves": [{"studies": ["grid"], "x": "method.gamma"}]})
    sweep.track()
    report = compile_report(sweep.uri, sweep.sweep_id, tmp_path, log_to_parent=False)
    assert "no finished runs" in report.paths["report.md"].read_text()


def test_recipe_refuses_an_axis_that_is_held() -> None:
    with pytest.raises(ValidationError, match="cannot be held"):
        Recipe.model_validate({"factor_curves": [{"studies": ["a"], "x": "p", "at": {"p": 1}}]})
