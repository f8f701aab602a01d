"""What could be 0 or 100 % only, such as results on a single class, is in no table."""

from __future__ import annotations

from typing import Any

import pytest

from reports.frame import Frame
from reports.pages.markup import format_plain_table
from reports.pages.table_files import format_latex, to_csv
from reports.recipe import Table
from reports.tables.build import build_all, build_table
from reports.tables.model import AnyTable
from reports.tables.verdict import judge_tables
from tests.reports import made

CELLS = [{"variant": name} for name in ("plain", "ddml")]
METRICS = ("test/map_at_r", "test/recall_at_1", "val/map_at_r")


def build_frame(constant: dict[str, float], **study: Any) -> Frame:
    """Two cells at three seeds; `constant` metrics have the same value everywhere."""
    frame = made.frame("compare", CELLS, lambda *_: 0.5, study=study)
    for metric in METRICS:
        values = [0.5 + 0.01 * row for row in range(len(frame.trials))]
        frame.trials[metric] = constant.get(metric, values)
    return Frame(None, frame.parents, frame.trials)


def print_everywhere(table: AnyTable) -> str:
    return "\n".join((format_plain_table(table, ()), format_latex(table), to_csv(table)))


def build(frame: Frame, kind: str, *metrics: str) -> AnyTable:
    return build_table(frame, Table(kind=kind, study="s", metrics=metrics))


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["compare", "search"])
def test_a_table_ordered_by_a_constant_split_has_no_rows(kind: str, value: float) -> None:
    frame = build_frame(dict.fromkeys(METRICS[:2], value))
    table = build(frame, kind, *METRICS)
    assert table.rows == () and "100.00" not in print_everywhere(table)
    assert any("results on test" in note for note in table.notes)
    assert judge_tables(frame, [table]) == []


def test_other_metrics_of_a_table_stay(kind: str = "compare") -> None:
    frame = build_frame({"val/map_at_r": 1.0})
    table = build(frame, kind, *METRICS)
    assert len(table.rows) == 2 and table.recipe.metrics == METRICS[:2]
    assert "100.00" not in print_everywhere(table)
    assert any("results on val" in note for note in table.notes)
    assert len(judge_tables(frame, [table])) == 1


@pytest.mark.parametrize(
    "constant",
    [{}, {"test/recall_at_1": 1.0}, {"test/map_at_r": 1.0}, dict.fromkeys(METRICS[:2], 0.5)],
    ids=str,
)
def test_one_metric_that_all_models_reach_is_shown(constant: dict[str, float]) -> None:
    """On images of several classes, MAP@R and Recall@1 are not both 100 % in all trials."""
    table = build(build_frame(constant), "compare", *METRICS)
    assert len(table.rows) == 2 and table.recipe.metrics == METRICS
    assert not any("Not shown" in note for note in table.notes)


def test_results_of_one_trial_that_differs_are_shown() -> None:
    frame = build_frame(dict.fromkeys(METRICS[:2], 1.0))
    frame.trials.loc[0, "test/map_at_r"] = 0.9
    assert len(build(Frame(None, frame.parents, frame.trials), "compare", *METRICS).rows) == 2


def test_importances_of_a_constant_metric_are_not_added() -> None:
    space = {"lr": {"low": 0.1, "high": 1.0, "log": False}}
    cells = [{"lr": 0.1 * (number + 1)} for number in range(9)]
    frame = made.frame("search", cells, lambda *_: 1.0, seeds=1, study={"space": space})
    recipe = frame.recipe.model_copy(update={"tables": (Table(kind="search", study="s"),)})
    (table,) = build_all(frame, recipe)
    assert table.rows == () and "100.00" not in print_everywhere(table)
