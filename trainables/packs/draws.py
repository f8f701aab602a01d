"""Draws of members inside one program: from each member's own streams, as it would draw alone.

A method draws from the generators that it is given. In a pack those are signs: a draw from one is
caught, made once for each slot from the slot's own generator of that name, and each slot gets its
own. Nothing about the draw may depend on what differs between slots, for it is made before they
differ: neither its shape nor its distribution.

Shape legend: S slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from trainables import streams

STREAMS = ("prepare", "method", "loss")


class Draws:
    """The random streams of a pack.

    Args:
        device: where methods draw.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
        self.signs = {name: torch.Generator(device) for name in STREAMS}
        self._own = [{name: torch.Generator(device) for name in STREAMS} for _ in range(slots)]
        self._names = {id(sign): name for name, sign in self.signs.items()}
        self._at: list[tuple[int, int]] = []
        self._begun: set[str] = set()

    def begin(self, at: Sequence[tuple[int, int]]) -> None:
        """A step of each slot, as (seed, step): its streams begin anew."""
        self._at = list(at)
        self._begun = set()

    def caught(self, slot: Tensor) -> TorchFunctionMode:
        """A block in which slots draw. slot: 0-d, each its own number."""
        return _Catching(self, slot)

    def of_each(self, sign: torch.Generator, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        """[S, ...]: the draw of each slot."""
        name = self._names.get(id(sign))
        if name is None:
            raise RuntimeError("a draw from a generator that is not one of the trial's streams")
        if name not in self._begun:
            self._begun.add(name)
            for own, (seed, step) in zip(self._own, self._at, strict=True):
                own[name].manual_seed(streams.derive(seed, name, step))
        drawn = [draw(own[name]) for own in self._own]
        if drawn[0].numel() and len({each.data_ptr() for each in drawn}) < len(drawn):
            raise RuntimeError(
                "a draw into a tensor that is there (`x.normal_(generator=g)`, `out=`), in which "
                "members of a pack would overwrite each other's; draw a new one, as "
                "`torch.randn(…, generator=g)` does"
            )
        return torch.stack(drawn)


class _Catching(TorchFunctionMode):
    def __init__(self, draws: Draws, slot: Tensor) -> None:
        super().__init__()
        self.draws, self.slot = draws, slot

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        sign = _generator(args, given)
        if sign is None:
            return func(*args, **given)

        def draw(own: torch.Generator) -> Tensor:
            placed = [own if value is sign else value for value in args]
            named = {name: own if value is sign else value for name, value in given.items()}
            drawn: Tensor = func(*placed, **named)
            return drawn

        each = self.draws.of_each(sign, draw)
        return each.index_select(0, self.slot.reshape(1)).squeeze(0)


def _generator(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Generator | None:
    found = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Generator)]
    return found[0] if found else None
