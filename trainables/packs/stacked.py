"""The networks of a pack as one: every parameter once, with a row for each slot.

Members keep networks of their own, whose parameters are rows of the stacked ones: what one does to
either, the other has. `torch.func.vmap` runs one member's code over all rows; a number of loss or
method is there a 0-d tensor, of each its own, in float64, so that it rounds as a number of Python.

Shape legend: S slots.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from trainables.core.network import Network
from trainables.losses.base import Loss
from trainables.methods.base import Method
from trainables.packs.draws import Draws
from trainables.packs.shape import numbers

Body = Callable[..., Any]


class Stacked:
    """Args:
    networks: of the members, alike but for their numbers; they fill the first slots.
    slots: those left over hold copies of the first member's.

    Attributes:
        parameters: by name, [S, ...], leaves.
    """

    def __init__(self, networks: Sequence[Network], slots: int) -> None:
        self.slots = slots
        filled = [*networks, *[networks[0]] * (slots - len(networks))]
        self._network = copy.deepcopy(networks[0])
        self._calling = _Calling(self._network)
        self.parameters = {
            name: torch.stack([dict(each.named_parameters())[name].detach() for each in filled])
            for name, _ in networks[0].named_parameters()
        }
        self._rows(networks, self.parameters)
        found = {
            name: torch.stack([dict(each.named_buffers())[name] for each in filled])
            for name, _ in networks[0].named_buffers()
        }
        alike = {name for name, rows in found.items() if bool((rows == rows[:1]).all())}
        self._buffers = {name: rows for name, rows in found.items() if name not in alike}
        self._places = [
            (owner, name)
            for owner in _owners(self._network)
            for name in numbers(type(owner))
            if getattr(owner, name) != 0
        ]
        device = next(iter(self.parameters.values())).device
        own = [_values(each) for each in filled]
        self._numbers = [
            torch.tensor([values[at] for values in own], dtype=torch.float64, device=device)
            for at in range(len(self._places))
        ]
        self._slot = torch.arange(slots, device=device)

    @property
    def method(self) -> Method:
        """The one that is called for all."""
        return self._network.method

    @staticmethod
    @torch.no_grad()
    def _rows(networks: Iterable[Network], parameters: dict[str, Tensor]) -> None:
        """Members' parameters become rows of the stacked ones."""
        for slot, network in enumerate(networks):
            for name, parameter in network.named_parameters():
                parameter.data = parameters[name].detach()[slot]

    def enter(self, active: set[str]) -> None:
        """Training mode, in which gradients flow to these parameters alone."""
        self._network.train()
        for name, rows in self.parameters.items():
            rows.requires_grad_(name in active)
            rows.grad = None

    def train(self, body: Body, draws: Draws, inputs: Tensor, labels: Tensor) -> Any:
        """body(network, inputs, labels) of each slot; `inputs` and `labels` are [S, ...], and so is
        every tensor that comes back."""

        def one(inputs: Tensor, labels: Tensor) -> Any:
            return body(self._network, inputs, labels)

        return self._each(one, (inputs, labels), draws)

    @torch.no_grad()
    def answers(self, answer: Callable[[Network, Tensor], Tensor], block: Tensor) -> Tensor:
        """answer(network, block) of each slot, in evaluation mode: [S, N, ...]."""
        self._network.eval()

        def one(_: Tensor) -> Tensor:
            return answer(self._network, block)

        found: Tensor = self._each(one, (self._slot,), None)
        return found

    def _each(self, body: Body, given: tuple[Tensor, ...], draws: Draws | None) -> Any:
        def one(
            parameters: dict[str, Tensor],
            buffers: dict[str, Tensor],
            values: list[Tensor],
            slot: Tensor,
            *given: Tensor,
        ) -> Any:
            with self._with(values):
                state = {f"network.{n}": t for n, t in (parameters | buffers).items()}
                if draws is None:
                    return functional_call(self._calling, state, (body, given))
                with draws.caught(slot):
                    return functional_call(self._calling, state, (body, given))

        buffers = self._buffers
        # "same": what is drawn in a block of `Draws` is drawn for all slots there.
        return vmap(one, randomness="same")(
            self.parameters, buffers, self._numbers, self._slot, *given
        )

    @contextmanager
    def _with(self, values: list[Tensor]) -> Iterator[None]:
        before = [getattr(owner, name) for owner, name in self._places]
        try:
            for (owner, name), value in zip(self._places, values, strict=True):
                setattr(owner, name, value)
            yield
        finally:
            for (owner, name), value in zip(self._places, before, strict=True):
                setattr(owner, name, value)


class _Calling(nn.Module):
    """What `functional_call` calls: a body, while the network has other parameters."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, body: Body, given: tuple[Tensor, ...]) -> Any:
        return body(*given)


def _owners(network: Network) -> list[Method | Loss]:
    """All that have numbers: a method may hold other losses than the one it is attached to."""
    return [part for part in network.method.modules() if isinstance(part, Method | Loss)]


def _values(network: Network) -> list[float]:
    own = [(owner, name) for owner in _owners(network) for name in numbers(type(owner))]
    return [getattr(owner, name) for owner, name in own if getattr(owner, name) != 0]
