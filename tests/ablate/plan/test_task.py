"""What a plan accepts: metrics of its task, several processes a trial, neutral options."""

from __future__ import annotations

from typing import Any

import pytest

from ablate.plan.neutral import get_neutral_options, inherits_neutral, is_neutral
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


@pytest.mark.parametrize("backbone", [{}, {"freeze_bn": False}], ids=["frozen_bn", "sync_bn"])
def test_several_gpus_a_trial_leave_the_plan_as_it_is(backbone: dict[str, Any]) -> None:
    trial = {"backbone": {"mode": "finetune", "weights": "none", **backbone}}
    spec = {"name": "several", "trial": trial, "studies": {"rates": GRID}}
    assert specs.plan({**spec, "resources": {"gpus": 4}}).order == specs.plan(spec).order


def test_an_option_that_is_off_may_be_absent_from_a_neutral_configuration() -> None:
    every = {"name": "idml", **get_neutral_options("idml")}
    before = {key: value for key, value in every.items() if value is not None}
    assert before.keys() < every.keys()
    for method in (every, before):
        assert is_neutral({"method": method})
        taken = {f"method.{key}": value for key, value in method.items() if key != "name"}
        assert inherits_neutral({"method": {"name": "idml"}}, [taken])
        for other in ({"tau": 5.0}, {"uncertainty_token": "kept"}):
            assert not is_neutral({"method": method | other})
    assert not is_neutral({"method": {"name": "idml", "mixing": "none"}}), "what is not None"


def test_a_classification_can_be_planned() -> None:
    plan = specs.plan(given())
    (point, _) = plan.spec.studies["rates"].all_points
    config = plan.resolve_config("rates", point)
    assert config.data.split.by == "images" and config.training.per_class == 1


def test_curves_and_tables_of_accuracies() -> None:
    report = {
        "tables": [{"kind": "compare", "study": "rates", "metrics": ["val/top_5_accuracy"]}],
        "curves": [{"studies": ["rates"], "metric": "val/top_1_accuracy"}],
    }
    specs.plan(given(report=report))
