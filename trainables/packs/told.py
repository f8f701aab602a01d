"""What the steps of a pack told, on the device until members want to know.

Shape legend: S slots · L steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from trainables.core.trace import Trace

Weights = Mapping[str, float | Tensor]


class Told:
    """Steps since the last `taken`."""

    def __init__(self) -> None:
        self._turns: list[frozenset[int]] = []
        self._at: list[int] = []
        self._values: dict[str, list[tuple[int, Tensor]]] = {}
        self._weights: dict[str, list[float | Tensor]] = {}
        self._observed: dict[str, list[tuple[int, Tensor]]] = {}

    def add(
        self,
        turn: Sequence[int],
        at: int,
        values: Mapping[str, Tensor],
        weights: Weights,
        observed: Mapping[str, Tensor],
    ) -> None:
        """One step of the members in `turn`, `at` of their epoch, from 0; tensors are [S]."""
        number = len(self._turns)
        self._turns.append(frozenset(turn))
        self._at.append(at)
        for name, value in values.items():
            self._values.setdefault(name, []).append((number, value.detach()))
            weight = weights[name]
            kept = weight.detach() if isinstance(weight, Tensor) else weight
            self._weights.setdefault(name, []).append(kept)
        for name, value in observed.items():
            self._observed.setdefault(name, []).append((number, value.detach()))

    def taken(self, slots: Sequence[int]) -> Iterator[tuple[int, Callable[[Trace], None]]]:
        """For each of these slots what puts its steps into its trace; then nothing is left."""
        values = {name: _table(told) for name, told in self._values.items()}
        observed = {name: _table(told) for name, told in self._observed.items()}
        weights = {name: _weights(told) for name, told in self._weights.items()}
        for slot in slots:
            yield slot, partial(self._into, slot, values, weights, observed)
        self.__init__()  # type: ignore[misc]

    def _into(
        self,
        slot: int,
        values: Mapping[str, Tensor],
        weights: Mapping[str, list[float] | Tensor],
        observed: Mapping[str, Tensor],
        trace: Trace,
    ) -> None:
        for name, told in self._values.items():
            column, weight = values[name][:, slot].unbind(), weights[name]
            for row, (number, _) in enumerate(told):
                if slot in self._turns[number]:
                    of_row = weight[row, slot] if isinstance(weight, Tensor) else weight[row]
                    trace.note(name, self._at[number], column[row], float(of_row))
        for name, told in self._observed.items():
            column = observed[name][:, slot].unbind()
            for row, (number, _) in enumerate(told):
                if slot in self._turns[number]:
                    trace.observe({name: column[row]})
        trace.length += sum(slot in turn for turn in self._turns)


def _table(told: Sequence[tuple[int, Tensor]]) -> Tensor:
    """[L, S], on the CPU."""
    return torch.stack([value for _, value in told]).cpu()


def _weights(told: Sequence[float | Tensor]) -> list[float] | Tensor:
    tensors = [weight for weight in told if isinstance(weight, Tensor)]
    if not tensors:
        return [float(weight) for weight in told]
    each = tensors[0]  # a weight may be a number in one phase, 0, and each its own in another
    return torch.stack([torch.as_tensor(w).to(each).expand_as(each) for w in told]).cpu()
