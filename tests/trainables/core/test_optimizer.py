"""Rates by step, against torch's own schedulers where they exist; groups by role."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from trainables.config.sections import OptimizerConfig, ScheduleConfig
from trainables.core.optimizer import RateSchedule, build_optimizer, set_rates
from trainables.errors import ConfigError
from trainables.losses.base import ParamGroup

EPOCHS, STEPS = 7, 5
TOTAL = EPOCHS * STEPS


def factors(name: str, epochs: int = EPOCHS, **options: Any) -> list[float]:
    schedule = RateSchedule(ScheduleConfig(name=name, **options), epochs, STEPS)
    return [schedule.factor(step) for step in range(epochs * STEPS)]


def of_torch(build: Any, every: int = 1, total: int = TOTAL) -> list[float]:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = build(optimizer)
    found = []
    for step in range(total):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % every == 0 and step + 1 < total:
            scheduler.step()
    return found


def test_one_cycle_is_torchs() -> None:
    expected = of_torch(
        lambda o: lr_scheduler.OneCycleLR(o, max_lr=1.0, total_steps=TOTAL, cycle_momentum=False)
    )
    assert factors("one_cycle") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("epochs", [1, 2])
def test_one_cycle_of_few_steps_stays_in_range(epochs: int) -> None:
    for steps in (1, 2, 3):
        schedule = RateSchedule(ScheduleConfig(name="one_cycle"), epochs, steps)
        found = [schedule.factor(step) for step in range(epochs * steps)]
        assert all(0 < factor <= 1 for factor in found)


def test_cosine_and_linear_are_torchs() -> None:
    expected = of_torch(lambda o: lr_scheduler.CosineAnnealingLR(o, TOTAL))
    assert factors("cosine") == pytest.approx(expected, rel=1e-9)
    expected = of_torch(lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, TOTAL))
    assert factors("linear") == pytest.approx(expected, rel=1e-9)


def test_step_is_torchs() -> None:
    expected = of_torch(lambda o: lr_scheduler.StepLR(o, 2, 0.5), every=STEPS)
    assert factors("step", step_epochs=2, gamma=0.5) == pytest.approx(expected)


def test_schedules_count_from_the_end_of_the_warmup() -> None:
    for name in ("constant", "step", "cosine", "linear", "one_cycle"):
        options = {"step_epochs": 2} if name == "step" else {}
        plain = factors(name, EPOCHS, **options)
        warm = factors(name, EPOCHS + 3, warmup_epochs=3, **options)
        assert warm[: 3 * STEPS] == [plain[0]] * (3 * STEPS)
        assert warm[3 * STEPS :] == plain


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_groups_by_role(name: Any) -> None:
    one, two, three = (nn.Parameter(torch.ones(3)) for _ in range(3))
    config = OptimizerConfig(name=name, lr=0.1, multipliers={"proxies": 10, "head": 0.5})
    groups = [ParamGroup("head", [one]), ParamGroup("proxies", [two]), ParamGroup("head", [three])]
    optimizer = build_optimizer(config, groups, torch.device("cpu"))
    assert [g["role"] for g in optimizer.param_groups] == ["head", "proxies"]
    assert [len(g["params"]) for g in optimizer.param_groups] == [2, 1]
    assert all(g["weight_decay"] == config.weight_decay for g in optimizer.param_groups)
    set_rates(optimizer, 0.5)
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.025, 0.5])
    for parameter in (one, two, three):
        parameter.grad = torch.ones(3)
    optimizer.step()
    assert torch.equal(one, three)
    assert (two < one).all()


def test_betas_out_of_range_are_told() -> None:
    config = OptimizerConfig(betas=(0.9, 1.5))
    with pytest.raises(ConfigError, match=r"optimizer\.betas: found \[0\.9, 1\.5\]"):
        build_optimizer(config, [], torch.device("cpu"))
