"""A plan refuses metrics of another task, wherever they are named."""

from __future__ import annotations

from typing import Any

from tests.ablate import specs

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


def test_curves_and_tables_of_accuracies() -> None:
    report = {
        "tables": [{"kind": "compare", "study": "rates", "metrics": ["val/top_5_accuracy"]}],
        "curves": [{"studies": ["rates"], "metric": "val/top_1_accuracy"}],
    }
    specs.plan(given(report=report))
