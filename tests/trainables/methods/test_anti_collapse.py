"""Anti-Collapse against loops, and its coding rate at its bounds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracles import regularisers as oracles
from tests.trainables.methods.cases import LABELS, SETS, C, D, base, build_on, compare, slots, step
from trainables.methods.anti_collapse import compute_coding_rate


@pytest.mark.parametrize("sets", [[{y} for y in LABELS], SETS])
@pytest.mark.parametrize("points", ["class_proxies", "proxies", "images"])
@pytest.mark.parametrize(("f", "factor"), [("exp", "code"), ("linear", "rate")])
def test_value_and_gradients_by_loops(sets: Any, points: str, f: str, factor: str) -> None:
    method = build_on(
        "anti_collapse", base("proxy_anchor"), points=points, f=f, factor=factor, weight=0.3
    )
    state, terms = step(method, labels=slots(sets))
    present = {y for item in sets for y in item}
    rows: list[Tensor] = {
        "class_proxies": [method.loss.proxies[y] for y in sorted(present)],
        "proxies": list(method.loss.proxies),
        "images": list(state.query),
    }[points]
    assert points != "class_proxies" or 1 < len(rows) <= C
    inverse = factor == "code" and points != "images"
    ratio = len(rows) / D if inverse else D / len(rows)
    rate = oracles.coding_rate(rows, ratio / 0.5)
    expected = torch.exp(-rate) if f == "exp" else -rate
    compare(method, terms["anti_collapse"].value, expected, 2 if points == "images" else 1)
    assert terms["anti_collapse"].weight == 0.3
    assert method.observed()["coding_rate"].item() == pytest.approx(rate.item())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_rate_of_orthogonal_and_of_equal_points(dtype: torch.dtype) -> None:
    """45 at D = 512, with the factor of the code: the fading of e^−R that the docstring states."""
    points = torch.eye(512, dtype=dtype)[:45].requires_grad_()
    spread = compute_coding_rate(points, 45 / 512 / 0.5)
    assert spread.item() == pytest.approx(22.5 * math.log(1 + 45 / 256), rel=1e-6)
    assert math.exp(-spread.item()) == pytest.approx(0.026, abs=5e-4)
    assert math.exp(-compute_coding_rate(points, 512 / 45 / 0.5).item()) < 1e-30
    collapsed = compute_coding_rate(points[:1].expand(600, -1), 1e6)
    assert collapsed.item() == pytest.approx(0.5 * math.log(1 + 6e8), rel=1e-6)
    (gradient,) = torch.autograd.grad(spread + collapsed, points)
    assert gradient.isfinite().all() and gradient.dtype == dtype
