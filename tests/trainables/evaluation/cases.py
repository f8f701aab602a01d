"""Sets on which metrics are compared with oracles; products are exact in float32."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor


def quarters(n: int, d: int, generator: Generator, levels: int = 9) -> Tensor:
    """Multiples of 1/4: their products and sums are exact in float32, so ties are true ties."""
    return (torch.randint(levels, (n, d), generator=generator) - levels // 2) / 4


Case = Callable[[Generator], tuple[Tensor, Tensor]]
CASES: dict[str, Case] = {
    "random": lambda g: (quarters(60, 16, g, 33), torch.randint(8, (60,), generator=g)),
    "tied": lambda g: (quarters(60, 2, g, 3), torch.randint(6, (60,), generator=g)),
    "all equal": lambda g: (torch.ones(30, 4), torch.randint(5, (30,), generator=g)),
    "all zero, signed": lambda g: (
        torch.zeros(20, 3) * (torch.randint(2, (20, 1), generator=g) * 2 - 1),
        torch.randint(4, (20,), generator=g),
    ),
    "duplicates": lambda g: (quarters(12, 6, g).repeat(5, 1), torch.randint(6, (60,), generator=g)),
    "imbalanced": lambda g: (
        quarters(60, 8, g),
        torch.cat([torch.zeros(45), torch.arange(15) // 3 + 1]).long(),
    ),
    "one-image classes": lambda g: (
        quarters(40, 8, g),
        torch.cat([torch.arange(20), torch.arange(20) // 4 + 20]),
    ),
    "one class": lambda g: (quarters(20, 4, g), torch.zeros(20).long()),
    "fewer items than k": lambda g: (quarters(5, 4, g), torch.tensor([0, 0, 1, 1, 0])),
    "gaps in the labels": lambda g: (quarters(30, 4, g), torch.randint(4, (30,), generator=g) * 7),
    "labels of 2^40": lambda g: (
        quarters(30, 4, g),
        torch.randint(4, (30,), generator=g) * 2**40 - 2**39,
    ),
}
