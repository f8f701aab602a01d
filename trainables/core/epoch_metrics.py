"""What the terms of one epoch were, without waiting for the device at each step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainables.errors import ConfigError, TrialFailure
from trainables.methods.base import Term

RATIO = "_to_metric"  # ends the name of a term's gradient over the metric term's
OVERWHELMING = 1000.0  # a ratio from which on the metric term is as good as absent
LARGEST = "/max"


class EpochMetrics:
    """Values and weights by term, as the device's tensors until the epoch is read.

    Args:
        epoch, first_step: of the epoch traced, for messages; epoch from 1, step from 0 over
            the whole trial.
    """

    def __init__(self, epoch: int, first_step: int) -> None:
        self.epoch, self.first_step = epoch, first_step
        self.length = self._checked = 0
        # of each term its step in the epoch, value and weight
        self._terms: dict[str, list[tuple[int, Tensor, float | Tensor]]] = defaultdict(list)
        self._observed: dict[str, list[Tensor]] = defaultdict(list)

    def add(self, terms: dict[str, Term]) -> Tensor:
        """Note one step's terms and return their `total`, for `backward`."""
        for name, (value, weight) in terms.items():
            factor = weight.detach() if isinstance(weight, Tensor) else weight
            self._terms[name].append((self.length, value.detach(), factor))
        self.length += 1
        return sum_terms(terms)

    def add_observed(self, scalars: dict[str, Tensor]) -> None:
        """Note what a method watches beside its terms (`Method.observed`)."""
        for name, value in scalars.items():
            self._observed[name].append(value.detach())

    def check(self) -> None:
        """Raise TrialFailure, naming term and step, if a value since the last check is not finite.

        Waits for the device; called at the end of the epoch, and now and then in a long one.
        """
        faults: list[tuple[int, str, float]] = []
        for name, entries in self._terms.items():
            recent = [(step, value) for step, value, _ in entries if step >= self._checked]
            bad = ~torch.stack([value for _, value in recent]).isfinite() if recent else None
            if bad is not None and bool(bad.any()):
                step, value = recent[int(bad.int().argmax())]
                faults.append((step, name, float(value)))
        self._checked = self.length
        if faults:
            step, name, number = min(faults, key=lambda fault: fault[0])
            raise TrialFailure(
                f"term {name!r} is {number} at step {self.first_step + step} (epoch {self.epoch}, "
                f"its step {step}): the loss is no longer finite"
            )

    def compute_means(self) -> dict[str, float]:
        """Return `train/loss`, `term/<name>/value` and `…/weight`, and `observed/<name>`: means
        over the epoch. What is observed may be infinite for a step, as a gradient norm may; such
        steps stay out of the mean and their share is told as `observed/<name>/nonfinite`. Of a
        term's gradient over the metric's, `<term>_to_metric`, there is also the largest finite
        value, `…/max`: one step can undo an epoch whose mean looks harmless."""
        averages: dict[str, float] = {}
        loss = 0.0
        for name, entries in self._terms.items():
            value = torch.stack([value for _, value, _ in entries]).double().cpu()
            weight = torch.tensor([float(w) for *_, w in entries], dtype=torch.float64)
            averages[f"term/{name}/value"] = float(value.mean())
            averages[f"term/{name}/weight"] = float(weight.mean())
            loss += float((value * weight).sum())
        for name, values in self._observed.items():
            steps = torch.stack(values).double().cpu()
            finite = steps.isfinite()
            if bool(finite.any()):
                averages[f"observed/{name}"] = float(steps[finite].mean())
                if name.endswith(RATIO):
                    averages[f"observed/{name}{LARGEST}"] = float(steps[finite].max())
            if not bool(finite.all()):
                averages[f"observed/{name}/nonfinite"] = float((~finite).double().mean())
        averages["train/loss"] = loss / self.length if self.length else math.nan
        return averages

    def get_state(self) -> dict[str, Any]:
        terms = {name: tuple(zip(*entries, strict=True)) for name, entries in self._terms.items()}
        return {
            "epoch": self.epoch,
            "first_step": self.first_step,
            "length": self.length,
            "steps": {name: list(steps) for name, (steps, _, _) in terms.items()},
            "values": {name: torch.stack(values).cpu() for name, (_, values, _) in terms.items()},
            "weights": {name: [float(w) for w in weights] for name, (*_, weights) in terms.items()},
            "observed": {name: torch.stack(v).cpu() for name, v in self._observed.items()},
        }

    @staticmethod
    def from_state(state: dict[str, Any], device: torch.device) -> EpochMetrics:
        trace = EpochMetrics(state["epoch"], state["first_step"])
        trace.length = trace._checked = state["length"]
        for name, steps in state["steps"].items():
            values = state["values"][name].to(device).unbind()
            trace._terms[name] = list(zip(steps, values, state["weights"][name], strict=True))
        for name, values in state["observed"].items():
            trace._observed[name] = list(values.to(device).unbind())
        return trace


def find_overwhelming_terms(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return each term whose gradient overwhelmed the metric term's in an epoch, and the ratio, by
    what `compute_means` returned for it."""
    ratios = {
        name.removeprefix("observed/").removesuffix(RATIO + LARGEST): value
        for name, value in metrics.items()
        if name.startswith("observed/") and name.endswith(RATIO + LARGEST)
    }
    return {term: ratio for term, ratio in ratios.items() if ratio >= OVERWHELMING}


def sum_terms(terms: Mapping[str, Term]) -> Tensor:
    """Return Σ weight · value.

    A term whose weight is the number 0 stays out of the sum, and of its gradient, so that
    not even the order of additions differs from a trial without the term.
    """
    loss: Tensor | None = None
    for value, weight in terms.values():
        if isinstance(weight, Tensor) or weight != 0:
            part = value if isinstance(weight, float | int) and weight == 1 else weight * value
            loss = part if loss is None else loss + part
    if loss is None:
        raise ConfigError("method", "every term has a weight of 0, which leaves no loss")
    return loss
