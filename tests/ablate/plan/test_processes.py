"""Several processes a trial: refused in the plan where they could not train it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ablate.specs import plan
from trainables.errors import ConfigError

FINETUNE = {"mode": "finetune", "weights": "none"}


def spec(backbone: dict[str, Any], **resources: Any) -> dict[str, Any]:
    return {
        "name": "several",
        "resources": resources,
        "trial": {"backbone": backbone},
        "studies": {"one": {"design": "grid", "grid": {"method.name": ["plain"]}}},
    }


@pytest.mark.parametrize(
    ("backbone", "resources", "told"),
    [
        ({"mode": "frozen"}, {"gpus": 4}, r"resources\.gpus: found 4 a trial with .*frozen"),
        ({"mode": "frozen"}, {"processes": 2}, r"resources\.processes: found 2 a trial with"),
        (
            {**FINETUNE, "freeze_bn": False},
            {"processes": 2, "cpus": 2, "gpus": 0},
            r"resources\.processes: .*norms .BatchNormAct2d. compute their.*Give each a GPU",
        ),
        (
            {**FINETUNE, "freeze_bn": False, "name": "legacy_senet154"},
            {"gpus": 2},
            r"resources\.gpus: .*which draws in training",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused_in_the_plan(
    backbone: dict[str, Any], resources: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        plan(spec(backbone, **resources))


def test_norms_of_a_batch_are_exchanged_between_gpus() -> None:
    trains = {**FINETUNE, "freeze_bn": False}
    assert plan(spec(trains, gpus=4)).order == plan(spec(trains)).order


def test_what_can_be_is_planned() -> None:
    assert plan(spec(FINETUNE, gpus=4)).order == plan(spec(FINETUNE)).order
