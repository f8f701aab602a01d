"""What a report warns of, on both sides of each threshold."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from reports.tables.warnings import find_edge, find_warnings, is_stationary
from tests.reports import made

RATE = {"low": 1e-5, "high": 1e-3, "log": True}
PLAIN = {"low": 1.0, "high": 3.0, "log": False}
WHOLE = {"low": 1, "high": 10, "int": True}


@pytest.mark.parametrize(
    ("values", "metric", "still"),
    [
        ([0.400, 0.4049, 0.402], "val/map_at_r", True),
        ([0.400, 0.4051, 0.402], "val/map_at_r", False),
        ([0.405, 0.402, 0.3999], "val/map_at_r", False),  # it fell: that is movement
        ([0.4, 0.4], "val/map_at_r", None),  # too few epochs
        ([0.995, 1.0, 1.0], "val/recall_at_1", None),  # no room
        ([2.0, 2.01, 2.0], "val/spectrum", True),
        ([2.0, 2.02, 2.0], "val/spectrum", False),
    ],
)
def test_a_curve_that_does_not_move(values: list[float], metric: str, still: bool | None) -> None:
    assert is_stationary(values, metric) is still


@pytest.mark.parametrize(
    ("axis", "best", "end"),
    [
        (RATE, [9e-4, 8e-4, 1e-4], "high"),
        (RATE, [7.9e-4, 9e-4, 1e-3], None),  # log10 says 0.949 of the way
        (RATE, [8.0e-4, 9e-4, 1e-4], "high"),  # 0.952
        (RATE, [9e-4, 1e-4, 2e-4], None),  # a lone hit: the next best are far away
        (RATE, [1.2e-5, 2e-5, 1e-3], "low"),
        (PLAIN, [1.09, 1.39, 3.0], "low"),
        (PLAIN, [1.11, 1.4, 3.0], None),
        (WHOLE, [10, 9, 1], "high"),
        ({**WHOLE, "high": 9}, [9, 8, 1], None),  # so few numbers end there by chance
        ({"low": 0.0, "high": 3.0}, [0.0, 0.1, 0.1], None),  # 0 is the least there is
        ({"low": 0.0, "high": 1.0}, [1.0, 0.9, 0.9], None),  # a share
        ({"choice": [1, 2, 3]}, [3, 3, 3], None),
    ],
)
def test_a_best_value_at_the_edge(axis: dict[str, Any], best: list[float], end: str | None) -> None:
    assert find_edge(axis, best) == end


def searched(rates: list[float], still: int, direction: str = "maximize") -> list[str]:
    """Warnings of a search whose trials get better with the rate; `still` of them do not move."""
    space = {"optimizer.lr": RATE, "method.alpha": {"choice": [1, 2]}}
    frame = made.frame(
        "search",
        [{"optimizer.lr": rate, "method.alpha": 1} for rate in rates],
        lambda coords, seed: float(coords["optimizer.lr"]),
        seeds=1,
        study={"space": space, "objectives": [{"metric": made.METRIC, "direction": direction}]},
    )

    def curves(metric: str, runs: list[str]) -> pd.DataFrame:
        rows = [
            (run, epoch, 0.3 + (0.0 if place < still else 0.1 * epoch))
            for place, run in enumerate(runs)
            for epoch in range(4)
        ]
        return pd.DataFrame(rows, columns=["run_id", "epoch", "value"])

    frame.load_curves = curves  # type: ignore[method-assign]
    return find_warnings(frame)


def test_they_name_the_study_the_trials_and_the_range() -> None:
    rates = [1e-5, 3e-5, 1e-4, 3e-4, 8e-4, 1e-3]
    still, edge = searched(rates, still=4)
    assert still == (
        "s: the validation metric did not move in 4 of 6 trials. The learning rate may be too "
        "small or the training too short."
    )
    assert "best value of `optimizer.lr`" in edge and edge.endswith("Widen this range.")
    (edge,) = searched(rates, still=3)
    assert "did not move" not in edge, "half of them is what a search may try"
    assert searched([3e-5, 1e-4, 2e-4, 2.5e-4, 3e-4, 4e-4], still=0) == []
    assert searched(rates[-4:], still=0) == [], "four trials say nothing of an edge"
    (edge,) = searched([1e-5, 2e-5, *rates[2:]], 0, "minimize")
    assert "`optimizer.lr`, 1e-5, lies at the low edge" in edge


@pytest.mark.parametrize(("off", "count"), [(0.0, 0), (1.0, 1), (None, 1)])
def test_an_edge_beyond_which_the_method_is_off_needs_no_warning(
    off: float | None, count: int
) -> None:
    """If the method switched off was among the finalists; a wider range would not tell more."""
    rates = [1.1e-3, 1.5e-3, 2e-3, 0.1, 0.3, 0.5]
    rows = [
        made.Row("s", f"{i}", {"method.alpha": rate}, i, 0, 0.5 - rate, f"{i}")
        for i, rate in enumerate(rates)
    ]
    final = "neutral" if off is not None else "1"
    rows.append(made.Row("best", final, {}, 0, 0, 0.6, "best"))
    space = {"method.alpha": {"low": 1e-3, "high": 0.9, "log": True}}
    studies = {"s": {"design": "search", "space": space}, "best": {"design": "promote", "of": "s"}}
    frame = made.assemble(rows, studies, params=lambda coords: {"method.alpha": off})
    frame.load_curves = _no_curves  # type: ignore[method-assign]
    assert len(find_warnings(frame)) == count


def test_a_gradient_of_a_thousand_times_the_metrics_is_told_and_a_lesser_one_is_not() -> None:
    name = "observed/nir_to_metric/max"
    frame = made.frame("grid", [{"a": 1}, {"a": 2}], lambda at, seed: 0.5, seeds=1)
    frame.trials["ratios"] = [{name: 0.1}, {name: 0.1}]
    curves = {run_id: {1: 999.0, 2: 0.1} for run_id in frame.trials["run_id"]}

    def load_curves(metric: str, runs: list[str]) -> pd.DataFrame:
        rows = [(run, *point) for run in runs for point in curves[run].items() if metric == name]
        return pd.DataFrame(rows, columns=["run_id", "epoch", "value"])

    frame.load_curves = load_curves  # type: ignore[method-assign]
    assert find_warnings(frame) == []
    curves["run1-0"] = {1: 1.5e14, 2: 0.1}
    (line,) = find_warnings(frame)
    assert line.startswith("s: the gradient of the term nir was at least a thousand times")
    assert "in 1 of 2 trials (at most 1.5e+14 times)" in line


def compare(**options: Any) -> list[str]:
    """Warnings of a comparison of two losses whose trials had 99 and 80 steps."""
    losses = [{"loss": "a"}, {"loss": "b"}]
    frame = made.frame("compare", losses, lambda at, seed: 0.5, seeds=1, **options)
    frame.cells["steps"], frame.load_curves = [99.0, 80.0], _no_curves  # type: ignore[method-assign]
    frame.trials["params"] = [{"loss.name": row["loss"]} for row in losses]
    return find_warnings(frame)


def _no_curves(metric: str, runs: Any) -> pd.DataFrame:
    return pd.DataFrame([], columns=["run_id", "epoch", "value"])


def test_short_trainings_and_rows_that_no_study_tuned() -> None:
    zero = {"loss=a": 0, "loss=b": 0}
    short, untuned = compare(tuning=zero)
    assert short.startswith("s: 99 steps are too few") and "no study tuned these rows" in untuned
    for options in (
        {"tuning": {"loss=a": 0, "loss=b": 8}},  # the note on budgets says it
        {"tuning": zero, "study": {"tuning": "as_published"}},
        {},  # a store of before tells no budget
    ):
        assert compare(**options) == [short]


def test_studies_with_the_same_warning_share_a_line() -> None:
    frame = made.frame("compare", [{"a": 1}, {"a": 2}], lambda at, seed: 0.5, seeds=1)
    frame.load_curves = _no_curves  # type: ignore[method-assign]
    frame.cells["steps"] = [34.0, 34.0]
    again = frame.cells.assign(study="t")
    frame.cells = pd.concat([frame.cells, again, again.assign(study="u", steps=35.0)])
    assert [line.split(" steps")[0] for line in find_warnings(frame)] == ["s, t: 34", "u: 35"]
