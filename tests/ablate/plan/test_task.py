"""A plan refuses metrics of another task, wherever they are named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ablate import specs
from trainables.errors import ConfigError

GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}}


def given(**changes: Any) -> dict[str, Any]:
    return {
        "name": "told",
        "objective": "val/top_1_accuracy",
        "trial": {"task": "classification", "loss": {"name": "normsoftmax"}},
        "studies": {"rates": GRID},
        **changes,
    }


def test_a_classification_can_be_planned() -> None:
    plan = specs.plan(given())
    (point, _) = plan.spec.studies["rates"].listed
    config = plan.resolved("rates", point)
    assert config.data.split.by == "images" and config.training.per_class == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "val/map_at_r"}, "objective: found 'val/map_at_r' for studies.rates"),
        ({"objective": "val/map_at_r"}, "Write val/top_1_accuracy"),
        (
            {"studies": {"rates": {**GRID, "metrics": ["density"]}}},
            "studies.rates.metrics.0: found 'density' for studies.rates",
        ),
        (
            {"report": {"tables": [{"kind": "compare", "study": "rates"}]}},
            "report.tables.0.metrics.0: found 'val/map_at_r' for studies.rates",
        ),
        (
            {"report": {"curves": [{"studies": ["rates"], "metric": "val/recall_at_1"}]}},
            "report.curves.0.metric: found 'val/recall_at_1' for studies.rates",
        ),
        ({"trial": {}}, "found 'val/top_1_accuracy' for studies.rates; expected a metric of task"),
        (
            {"trial": {"task": "classification"}},
            "trial.task|loss.name: found proxy_anchor with task: classification",
        ),
        (
            {"studies": {"rates": {**GRID, "folds": 2}}},
            "found 2 where images are dealt, not classes",
        ),
    ],
)
def test_metrics_of_another_task_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        specs.plan(given(**changes))


def test_the_default_objective_is_called_so() -> None:
    spec = given()
    del spec["objective"]
    with pytest.raises(ConfigError, match=r"'val/map_at_r' \(the default\)"):
        specs.plan(spec)


def test_curves_and_tables_of_accuracies() -> None:
    report = {
        "tables": [{"kind": "compare", "study": "rates", "metrics": ["val/top_5_accuracy"]}],
        "curves": [{"studies": ["rates"], "metric": "val/top_1_accuracy"}],
    }
    specs.plan(given(report=report))
