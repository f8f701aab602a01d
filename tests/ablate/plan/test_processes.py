"""Several processes a trial: refused in the plan where they could not train it."""

from __future__ import annotations

from typing import Any

from tests.ablate.specs import plan

FINETUNE = {"mode": "finetune", "weights": "none"}


def spec(backbone: dict[str, Any], **resources: Any) -> dict[str, Any]:
    return {
        "name": "several",
        "resources": resources,
        "trial": {"backbone": backbone},
        "studies": {"one": {"design": "grid", "grid": {"method.name": ["plain"]}}},
    }


def test_norms_of_a_batch_are_exchanged_between_gpus() -> None:
    trains = {**FINETUNE, "freeze_bn": False}
    assert plan(spec(trains, gpus=4)).order == plan(spec(trains)).order


def test_what_can_be_is_planned() -> None:
    assert plan(spec(FINETUNE, gpus=4)).order == plan(spec(FINETUNE)).order
