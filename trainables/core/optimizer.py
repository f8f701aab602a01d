"""Build the optimiser, and compute the learning rate as a function of the step."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainables.config.optimization import OptimizerConfig, Role, ScheduleConfig
from trainables.losses.base import ParamGroup

# defaults of OneCycleLR: the share of rising steps, and the first and last factors
ONE_CYCLE_RISE, ONE_CYCLE_START, ONE_CYCLE_END = 0.3, 1 / 25, 1 / 25e4


def build_optimizer(config: OptimizerConfig, groups: list[ParamGroup]) -> torch.optim.Optimizer:
    """Build the optimiser with one parameter group for each role.

    A role says what a parameter is ("backbone", "head", …). To torch's keys each
    group adds `role` and `base_lr`, which is lr times the multiplier of the role.
    """
    by_role: dict[Role, list[nn.Parameter]] = {}
    for group in groups:
        by_role.setdefault(group.role, []).extend(group.params)
    torch_groups: list[dict[str, Any]] = []
    for role, params in by_role.items():
        multiplier = getattr(config.multipliers, role)
        base = config.lr * (1.0 if multiplier is None else float(multiplier))
        decay = config.get_weight_decay(role)
        torch_groups.append(
            {"params": params, "role": role, "base_lr": base, "lr": base, "weight_decay": decay}
        )
    if config.name == "sgd":
        return torch.optim.SGD(
            torch_groups,
            lr=config.lr,
            momentum=config.momentum,
            dampening=config.dampening or 0.0,
            nesterov=config.nesterov or False,
            fused=True,
        )
    adam = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return adam(torch_groups, lr=config.lr, betas=config.betas, fused=True)


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set each group's learning rate to its base rate times `factor`."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor


@dataclass(frozen=True)
class RateSchedule:
    """Compute the factor of the base learning rates at a step, counted from 0.

    With n steps after the warm-up, and step i counted from the end of the warm-up:

        constant   1
        step       gamma^⌊epoch / step_epochs⌋, epochs counted from the end of the warm-up, or
                   from the start of the training
        multi_step gamma^(number of milestones ≤ epoch), epochs likewise
        cosine     (1 + cos(π i / n)) / 2
        linear     1 − i / n
        one_cycle  torch's OneCycleLR with its defaults and constant momentum: cosine from 1/25
                   up to 1 over 30 % of the steps, then down to 1/250,000

    During the warm-up the factor is that of i = 0, unless epochs are counted from the start. Steps
    before the first epoch (`warmup_steps`) are negative, and their factor is 1.
    """

    config: ScheduleConfig
    epochs: int
    steps_per_epoch: int

    def compute_factor(self, step: int) -> float:
        """Return the factor of all base learning rates at a step."""
        warmup = self.config.warmup_epochs * self.steps_per_epoch
        n = self.epochs * self.steps_per_epoch - warmup  # steps after the warm-up
        i = max(0, step - warmup)  # steps after the warm-up and before this one
        match "constant" if step < 0 else self.config.name:
            case "constant":
                return 1.0
            case "step":
                drops = self._count_epochs(step) // self.config.step_epochs
                return float(self.config.gamma**drops)
            case "multi_step":
                passed = [m for m in self.config.milestones or () if m <= self._count_epochs(step)]
                return float(self.config.gamma ** len(passed))
            case "cosine":
                return (1 + math.cos(math.pi * i / n)) / 2
            case "linear":
                return 1 - i / n
            case "one_cycle":
                return _one_cycle_factor(i, n)

    def _count_epochs(self, step: int) -> int:
        """Return the epochs finished before a step, since the start or the end of the warm-up."""
        offset = 0 if self.config.counted_from == "start" else self.config.warmup_epochs
        return max(0, step // self.steps_per_epoch - offset)


def _one_cycle_factor(i: int, n: int) -> float:
    """Return the factor of torch's OneCycleLR at step i of n: it rises to 1, then falls."""
    peak_step = ONE_CYCLE_RISE * n - 1
    if i <= peak_step:
        start, end, share = ONE_CYCLE_START, 1.0, i / peak_step
    else:  # a run too short for a rise (peak_step ≤ 0) starts at its peak
        peak_step = max(peak_step, 0.0)
        start, end, share = 1.0, ONE_CYCLE_END, (i - peak_step) / max(n - 1 - peak_step, 1.0)
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))  # a cosine from start to end
