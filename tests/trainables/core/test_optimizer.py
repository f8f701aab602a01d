"""Rates by step, against torch's own schedulers where they exist; groups by role."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from trainables.config.optimization import Multipliers, OptimizerConfig, ScheduleConfig
from trainables.core.optimizer import (
    RateSchedule,
    build_optimizer,
    set_rates,
)
from trainables.losses.base import ParamGroup

EPOCHS, STEPS = 7, 5
TOTAL = EPOCHS * STEPS


def factors(name: str, epochs: int = EPOCHS, **options: Any) -> list[float]:
    schedule = RateSchedule(ScheduleConfig(name=name, **options), epochs, STEPS)
    return [schedule.compute_factor(step) for step in range(epochs * STEPS)]


def of_torch(build: Any, every: int = 1, total: int = TOTAL) -> list[float]:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = build(optimizer)
    actual = []
    for step in range(total):
        actual.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % every == 0 and step + 1 < total:
            scheduler.step()
    return actual


def test_one_cycle_is_torchs() -> None:
    expected = of_torch(
        lambda o: lr_scheduler.OneCycleLR(o, max_lr=1.0, total_steps=TOTAL, cycle_momentum=False)
    )
    assert factors("one_cycle") == pytest.approx(expected, rel=1e-9)


def test_cosine_and_linear_are_torchs() -> None:
    expected = of_torch(lambda o: lr_scheduler.CosineAnnealingLR(o, TOTAL))
    assert factors("cosine") == pytest.approx(expected, rel=1e-9)
    expected = of_torch(lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, TOTAL))
    assert factors("linear") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "options", "scheduler"),
    [
        ("step", {"step_epochs": 3}, lambda o: lr_scheduler.StepLR(o, 3, 0.5)),
        ("multi_step", {"milestones": [1, 4]}, lambda o: lr_scheduler.MultiStepLR(o, [1, 4], 0.5)),
        ("multi_step", {"milestones": [1]}, lambda o: lr_scheduler.MultiStepLR(o, [1], 0.5)),
    ],
)
def test_steps_are_torchs_and_may_be_counted_from_the_start(
    name: str, options: Any, scheduler: Any
) -> None:
    """As where torch's scheduler is stepped after every epoch, those of the warm-up too."""
    expected = of_torch(scheduler, every=STEPS)
    for warmup in (0, 2):
        actual = factors(name, counted_from="start", warmup_epochs=warmup, **options)
        assert actual == pytest.approx(expected)
    after = factors(name, warmup_epochs=2, **options)
    assert after == pytest.approx([1.0] * (2 * STEPS) + expected[: -2 * STEPS])


def test_schedules_count_from_the_end_of_the_warmup() -> None:
    options_by_name = {"step": {"step_epochs": 2}, "multi_step": {"milestones": [2, 5]}}
    for name in ("constant", "step", "multi_step", "cosine", "linear", "one_cycle"):
        options = options_by_name.get(name, {})
        plain = factors(name, EPOCHS, **options)
        warm = factors(name, EPOCHS + 3, warmup_epochs=3, **options)
        assert warm[: 3 * STEPS] == [plain[0]] * (3 * STEPS)
        assert warm[3 * STEPS :] == plain
        schedule = RateSchedule(ScheduleConfig(name=name, **options), EPOCHS, STEPS)
        assert [schedule.compute_factor(step) for step in (-9, -1)] == [1.0, 1.0]


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_groups_by_role(name: Any) -> None:
    one, two, three = (nn.Parameter(torch.ones(3)) for _ in range(3))
    config = OptimizerConfig(name=name, lr=0.1, multipliers={"proxies": 10, "head": 0.5})
    groups = [ParamGroup("head", [one]), ParamGroup("proxies", [two]), ParamGroup("head", [three])]
    optimizer = build_optimizer(config, groups)
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


KINDS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def trajectory(optimizer: torch.optim.Optimizer, params: list[nn.Parameter]) -> list[torch.Tensor]:
    """Where parameters are after each of ten steps along gradients of their own."""
    g = torch.Generator().manual_seed(0)
    actual = []
    for _ in range(10):
        for parameter in params:
            parameter.grad = torch.randn(parameter.shape, generator=g)
        optimizer.step()
        actual.append(torch.cat([parameter.detach().clone() for parameter in params]))
    return actual


def moved(config: OptimizerConfig) -> list[torch.Tensor]:
    params = [nn.Parameter(torch.ones(5)) for _ in range(3)]
    roles = ("backbone", "head", "proxies")
    groups = [ParamGroup(role, [item]) for role, item in zip(roles, params, strict=True)]
    return trajectory(build_optimizer(config, groups), params)


@pytest.mark.parametrize("name", list(KINDS))
def test_weight_decay_by_role_is_that_of_torchs_groups(name: Any) -> None:
    config = OptimizerConfig(
        name=name,
        lr=0.1,
        weight_decay=0.3,
        multipliers={"proxies": 10},
        weight_decays={"backbone": 0.7, "proxies": 0},
    )
    params = [nn.Parameter(torch.ones(5)) for _ in range(3)]
    groups = [
        {"params": [params[0]], "lr": 0.1, "weight_decay": 0.7},
        {"params": [params[1]], "lr": 0.1, "weight_decay": 0.3},
        {"params": [params[2]], "lr": 1.0, "weight_decay": 0.0},
    ]
    more = {"momentum": 0.9} if name == "sgd" else {}
    expected = trajectory(KINDS[name](groups, fused=True, **more), params)
    actual = moved(config)
    assert all(torch.equal(*both) for both in zip(actual, expected, strict=True))
    plain = moved(config.model_copy(update={"weight_decays": None}))
    assert not torch.equal(plain[-1][:5], actual[-1][:5])
    assert torch.equal(plain[-1][5:10], actual[-1][5:10])


@pytest.mark.parametrize("options", [{"nesterov": True}, {"dampening": 0.4}])
def test_nesterov_and_dampening_are_torchs(options: dict[str, Any]) -> None:
    config = OptimizerConfig(name="sgd", lr=0.1, momentum=0.8, weight_decay=0.3, **options)
    config = config.model_copy(update={"multipliers": Multipliers(proxies=1)})
    params = [nn.Parameter(torch.ones(5)) for _ in range(3)]
    of_torchs = torch.optim.SGD(params, 0.1, 0.8, weight_decay=0.3, **options)
    expected = trajectory(of_torchs, params)
    actual = moved(config)
    torch.testing.assert_close(actual, expected)
    assert not torch.allclose(actual[1], moved(config.model_copy(update=dict.fromkeys(options)))[1])
