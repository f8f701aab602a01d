"""What a plan accepts: metrics of its task, several processes a trial, neutral options."""

from __future__ import annotations

from typing import Any

from ablate.plan.inheritance import get_neutral_options, inherits_neutral, is_neutral
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
