"""Options of optimiser, schedule and crops as a spec says, varies and searches them."""

from __future__ import annotations

from typing import Any

from ablate.designs.parts import Point
from ablate.plan import warnings as advice
from ablate.plan.plan import Plan
from tests.ablate.specs import plan
from trainables.config.images import AugmentConfig

FINETUNE = {"backbone": {"mode": "finetune"}}


def spec(study: dict[str, Any], **trial: Any) -> dict[str, Any]:
    return {
        "name": "options",
        "trial": {"training": {"epochs": 20}, **trial},
        "studies": {"one": {"seeds": 1, **study}},
    }


def grid(axes: dict[str, list[Any]], **trial: Any) -> Plan:
    return plan(spec({"design": "grid", "grid": axes}, **trial))


def test_they_are_searched() -> None:
    space = {
        "optimizer.weight_decays.proxies": {"low": 1e-6, "high": 1e-2, "log": True},
        "data.augment.resize": {"choice": [64, 70]},
        "schedule.milestones": {"choice": [[5], [5, 10]]},
        "schedule.warmup_epochs": {"low": 1, "high": 3, "int": True},
    }
    made = plan(
        spec(
            {"design": "search", "trials": 4, "space": space},
            **FINETUNE,
            schedule={
                "name": "multi_step",
                "milestones": [3],
                "warmup_epochs": 1,
                "warmup_hold": ["backbone", "head"],
            },
        )
    )
    values = {
        "optimizer.weight_decays.proxies": 1e-3,
        "data.augment.resize": 70,
        "schedule.milestones": [5, 10],
        "schedule.warmup_epochs": 2,
    }
    config = made.resolve_config("one", Point("x", values, values, "space"))
    assert config.optimizer.get_weight_decay("proxies") == 1e-3
    assert config.optimizer.get_weight_decay("head") == config.optimizer.weight_decay
    assert (config.data.augment.resize, config.schedule.milestones) == (70, (5, 10))
    assert config.schedule.held_roles == ("backbone", "head")


def test_a_plan_warns_of_augmentation_that_cached_features_do_not_see() -> None:
    crops = {"data": {"augment": {"crop_scale": [0.08, 1], "flip": 0}}}
    axis = {"optimizer.lr": [1e-4, 1e-3]}
    assert advice.list_plan_warnings(grid(axis, **FINETUNE, **crops)) == []
    assert advice.list_plan_warnings(grid(axis, backbone={"mode": "frozen"})) == []
    (warned,) = advice.list_plan_warnings(grid(axis, backbone={"mode": "frozen"}, **crops))
    assert warned.startswith("one: data.augment.crop_scale, data.augment.flip with backbone.mode: ")
    defaults = {"data": {"augment": AugmentConfig().model_dump(mode="json")}}
    assert advice.list_plan_warnings(grid(axis, backbone={"mode": "frozen"}, **defaults)) == []
    varied = grid({"data.augment.flip": [0, 0.5]}, backbone={"mode": "frozen"})
    assert len(advice.list_plan_warnings(varied)) == 1


def test_a_plan_warns_of_bf16_that_cached_features_do_not_have() -> None:
    axis, bf16 = {"optimizer.lr": [1e-3, 1e-4]}, {"training": {"precision": "bf16"}}
    assert advice.list_plan_warnings(grid(axis, **FINETUNE, **bf16)) == []
    assert advice.list_plan_warnings(grid(axis, backbone={"mode": "frozen"})) == []
    varied = {"training.precision": ["fp32", "bf16"]}
    for made in (
        grid(axis, backbone={"mode": "frozen"}, **bf16),
        grid(varied, backbone={"mode": "frozen"}),
    ):
        (warned,) = advice.list_plan_warnings(made)
        assert warned.startswith("one: training.precision with backbone.mode: frozen, whose feat")
