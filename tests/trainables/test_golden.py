"""Numbers that a REVISION stands for.

Where one of these fails, a component gives other numbers than before: raise its REVISION, so
that no stored result is taken for a new one, and write the new numbers here beside it.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trainables.config import TrialConfig
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS, Progress
from trainables.model import build_method

FEATURES, D, C, B = 6, 4, 3, 6
GOLDEN: dict[tuple[str, int, str, int], dict[str, float]] = {
    ("ddml", 1, "normsoftmax", 1): {
        "metric": 7.996544164075643,
        "agnostic": 8.483050709071275,
        "specific": 1.5266468456735707,
        "split": 48.4627287972311,
    },
    ("ddml", 1, "proxy_anchor", 1): {
        "metric": 30.978001947548062,
        "agnostic": 8.483050709071275,
        "specific": 1.5266468456735707,
        "split": 48.4627287972311,
    },
    ("plain", 1, "normsoftmax", 1): {
        "metric": 7.996544164075643,
    },
    ("plain", 1, "proxy_anchor", 1): {
        "metric": 30.978001947548062,
    },
}


def wave(*shape: int, shift: float) -> Tensor:
    """Fixed numbers that need no generator."""
    n = torch.Size(shape).numel()
    return torch.sin(1.7 * torch.arange(n, dtype=torch.float64) + shift).view(shape)


def measured(method: str, loss: str) -> dict[str, float]:
    config = TrialConfig(method={"name": method}, loss={"name": loss}, embedding={"dim": D})
    built = build_method(config, features=FEATURES, classes=C, seed=0).double()
    with torch.no_grad():
        for place, parameter in enumerate(built.parameters()):
            parameter.copy_(wave(*parameter.shape, shift=place))
    labels = (torch.arange(B) % C)[:, None]
    generator = torch.Generator().manual_seed(0)
    state = built(wave(B, FEATURES, shift=0.5), labels, Progress(), generator)
    terms = built.terms(state, labels, Progress(), generator)
    return {name: term.value.item() for name, term in terms.items()}


def test_every_component_has_golden_values() -> None:
    expected = {(m, METHODS[m].REVISION, n, LOSSES[n].REVISION) for m in METHODS for n in LOSSES}
    assert set(GOLDEN) == expected


@pytest.mark.parametrize("key", list(GOLDEN))
def test_golden_values(key: tuple[str, int, str, int]) -> None:
    assert measured(key[0], key[2]) == pytest.approx(GOLDEN[key], rel=1e-9)
