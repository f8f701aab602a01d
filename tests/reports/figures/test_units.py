"""What n counts in figures and articles: class splits where a study has them, else seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from reports.figures.figure import format_counts
from reports.frame import Frame
from reports.pages.table_files import format_plain_latex
from reports.recipe import Curves, FactorCurves, Figure, Heatmap, Table
from reports.tables.build import build_table
from tests.reports.made import METRIC, divide, draw_part, drawer, frame

POINTS = [{"method.alpha": a, "method.beta": b} for a in (1, 2) for b in (1, 2)]
SEEDS, SPLITS = 6, 3  # two seeds for each split


def value(at: dict[str, Any], seed: int) -> float:
    return 0.3 + 0.1 * at["method.alpha"] + 0.04 * at["method.beta"] + 0.01 * seed**2


def divided() -> Frame:
    return divide(frame("grid", POINTS, value, seeds=SEEDS), SPLITS)


def figure(kind: str, **options: Any) -> Callable[[Frame], Any]:
    recipe = Figure(kind=kind, studies=("s",), metric=METRIC, options=options)
    return lambda found: drawer(kind)(found, recipe)


DRAW: dict[str, Callable[[Frame], Any]] = {
    "curves": lambda found: draw_part(found, curves=[Curves(studies=("s",))]),
    "factor_curves": lambda found: draw_part(
        found, factor_curves=[FactorCurves(studies=("s",), x="method.alpha")]
    ),
    "heatmap": lambda found: draw_part(
        found, heatmaps=[Heatmap(study="s", x="method.alpha", y="method.beta")]
    ),
    "interactions": figure("interactions"),
    "critical_difference": figure("critical_difference", factor="method.alpha"),
}


@pytest.fixture(autouse=True)
def curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of each run, the second one with its final value."""

    def load(self: Frame, metric: str, run_ids: Any) -> pd.DataFrame:
        finals = dict(zip(self.trials["run_id"], self.trials[metric], strict=True))
        rows = [(run, epoch, epoch / 2 * finals[run]) for run in run_ids for epoch in (1, 2)]
        return pd.DataFrame(rows, columns=["run_id", "epoch", "value"])

    monkeypatch.setattr(Frame, "load_curves", load)


@pytest.mark.parametrize("kind", DRAW)
def test_captions_count_splits(kind: str) -> None:
    seeds, splits = (DRAW[kind](found).caption for found in (frame_of_seeds(), divided()))
    assert "seeds" in seeds and "split" not in seeds
    assert "splits" in splits and "seed" not in splits
    if kind != "critical_difference":
        assert f"n = {SEEDS} seeds" in seeds and f"n = {SPLITS} splits" in splits


def frame_of_seeds() -> Frame:
    return frame("grid", POINTS, value, seeds=SEEDS)


def test_several_studies_may_count_both() -> None:
    assert format_counts([1, 5], "seeds or splits") == "n = 1–5 seeds or splits"
    assert format_counts([1], "seeds or splits") == "n = 1 seed or split"


def test_a_plain_table_names_what_its_deviations_are_over() -> None:
    for found, unit in ((frame_of_seeds(), "seeds"), (divided(), "splits")):
        table: Any = build_table(found, Table(kind="compare", study="s"))
        assert table.unit + "s" == unit
        assert rf"mean $\pm$ sd over {unit}" in format_plain_latex(table)


def test_a_curve_is_the_mean_over_splits_and_its_band_their_deviation() -> None:
    found = divided()
    is_first = (found.cells["cell"] == found.cells["cell"].iloc[0]) & (found.cells["fold"] == 0)
    found.cells.loc[is_first & (found.cells["seed"] == 1), "status"] = "running"
    panel = DRAW["curves"](found).figure.axes[0]
    for line, band, at in zip(panel.lines, panel.collections, POINTS, strict=True):
        runs = 100 * np.array([value(at, seed) for seed in range(SEEDS)])
        splits = runs.reshape(-1, SPLITS).mean(axis=0)
        splits = splits[1:] if at == POINTS[0] else splits  # the first one is not complete
        assert list(line.get_ydata()) == pytest.approx([splits.mean() / 2, splits.mean()])
        assert line.get_label().endswith(f"({len(splits)})")
        (path,) = band.get_paths()
        top = splits.mean() + splits.std(ddof=1)
        assert path.vertices[:, 1].max() == pytest.approx(top)


def test_a_square_is_the_mean_over_the_levels_of_other_factors() -> None:
    points = [at | {"method.gamma": c} for at in POINTS for c in (1, 2, 6)]
    grid = frame(
        "grid", points, lambda at, seed: value(at, seed) + 0.03 * at["method.gamma"], seeds=3
    )
    drawn = draw_part(grid, heatmaps=[Heatmap(study="s", x="method.alpha", y="method.beta")])
    squares = np.asarray(drawn.figure.axes[0].images[0].get_array())
    for i, j in np.ndindex(2, 2):
        at = {"method.alpha": j + 1, "method.beta": i + 1}
        expected = np.mean([value(at, seed) for seed in range(3)]) + 0.03 * 3
        assert squares[i, j] == pytest.approx(100 * expected)
