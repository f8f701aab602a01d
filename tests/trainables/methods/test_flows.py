"""Every flow inverts, tells its Jacobian, and trains all of itself."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from trainables import streams
from trainables.methods.flow import Flow, FlowConfig, soft_clamp

KINDS = ["realnvp", "nice", "glow"]
GOLDEN = Path(__file__).parent / "flows.json"


def flow_of(dim: int = 6, condition_dim: int = 0, **options: Any) -> Flow:
    config = FlowConfig(**{"depth": 3, "width": 16, "gain": 1.0} | options)
    with streams.seed_global_generator(0, "flow"):
        flow = Flow(config, dim=dim, condition_dim=condition_dim)
        if flow.scale is not None:
            torch.nn.init.normal_(flow.scale)
    return flow


def draw(*shape: int, name: str = "x", dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=streams.create_generator(0, name), dtype=dtype)


def jacobian(flow: Flow, x: Tensor, condition: Tensor | None = None) -> Tensor:
    """[D, D] at one item."""
    found: Tensor = torch.autograd.functional.jacobian(lambda v: flow(v, condition).z, x)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dim", "condition_dim"), [(2, 0), (2, 5), (7, 5), (64, 0), (512, 0)])
@pytest.mark.parametrize("scaling", [True, False])
def test_inverse(kind: str, dim: int, condition_dim: int, scaling: bool) -> None:
    """512 is the paper's size."""
    width = 512 if dim == 512 else 16
    flow = flow_of(dim, condition_dim, kind=kind, depth=12, width=width, scaling=scaling, gain=0.1)
    for dtype, bound in ((torch.float64, 1e-6), (torch.float32, 1e-4)):
        flow = flow.to(dtype)
        x = draw(9, dim, dtype=dtype)
        condition = draw(9, condition_dim, name="c", dtype=dtype) if condition_dim else None
        z = flow(x, condition).z
        assert z.dtype == dtype
        assert not torch.allclose(z, x)
        assert (flow.inverse(z, condition) - x).abs().max() <= bound


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [2, 7])
@pytest.mark.parametrize("depth", [1, 5])
@pytest.mark.parametrize("permutation", [True, False])
def test_log_det_is_autograds(kind: str, dim: int, depth: int, permutation: bool) -> None:
    flow = flow_of(dim, 4, kind=kind, depth=depth, permutation=permutation, scaling=True)
    flow = flow.double()
    x, condition = draw(5, dim), draw(5, 4, name="c")
    found = flow(x, condition)
    for i in range(5):
        _, expected = torch.linalg.slogdet(jacobian(flow, x[i], condition[i]))
        torch.testing.assert_close(found.log_det[i], expected)
    torch.testing.assert_close(found.log_diagonal.sum(-1), found.log_det)


def test_glow_is_equation_7_of_nir() -> None:
    flow = flow_of(5, kind="glow", depth=1, scaling=False).double()
    x = draw(5)

    def subnet(k: int, v: Tensor) -> tuple[Tensor, Tensor]:
        first, _, last = flow.couplings[k].subnet
        out = last.weight @ torch.clamp(first.weight @ v + first.bias, min=0) + last.bias
        half = len(out) // 2
        return 2 * 0.636 * torch.atan(out[:half]), out[half:]

    x1, x2 = x[:2], x[2:]
    s, t = subnet(0, x1)
    y2 = x2 * torch.exp(s) + t
    s, t = subnet(1, y2)
    y1 = x1 * torch.exp(s) + t
    torch.testing.assert_close(flow(x).z, torch.cat([y1, y2]))


def test_scales_are_bounded() -> None:
    raw = torch.tensor([-1e30, -1.0, 0.0, 1.0, 1e30])
    found = soft_clamp(raw, 2.0).tolist()
    bound = 0.636 * math.pi
    assert found == pytest.approx([-bound, -bound / 2, 0.0, bound / 2, bound])
    assert bound < 2
    flow = flow_of(scaling=True, clamp=0.5)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.mul_(1e6)
    x = draw(4, 6, dtype=torch.float32)
    for log_scales in flow(x).log_scales:
        assert log_scales.abs().max() <= 0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("condition", ["dense", "start", "mid", "end"])
@pytest.mark.parametrize("hidden", [1, 3])
def test_gradients_reach_every_parameter(kind: str, condition: str, hidden: int) -> None:
    flow = flow_of(5, 3, kind=kind, condition=condition, hidden=hidden, scaling=True)
    x, c = draw(8, 5, dtype=torch.float32), draw(8, 3, name="c", dtype=torch.float32)
    x.requires_grad_()
    c.requires_grad_()
    found = flow(x, c)
    (found.z.square().sum() + found.log_det.sum()).backward()
    for name, tensor in [("x", x), ("c", c), *flow.named_parameters()]:
        assert tensor.grad is not None, name
        assert tensor.grad.isfinite().all(), name
        assert tensor.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    ("kind", "condition", "seen"),
    [
        ("realnvp", "dense", [0, 1, 2]),
        ("realnvp", "start", [0]),
        ("realnvp", "mid", [1]),
        ("nice", "end", [2]),
        ("glow", "dense", [0, 1, 2, 3, 4, 5]),
        ("glow", "start", [0, 1]),
        ("glow", "mid", [2, 3]),
        ("glow", "end", [4, 5]),
    ],
)
def test_condition_changes_the_output_where_it_enters(
    kind: str, condition: str, seen: list[int]
) -> None:
    flow = flow_of(6, 3, kind=kind, condition=condition)
    widths = [coupling.subnet[0].in_features for coupling in flow.couplings]
    assert [k for k, width in enumerate(widths) if width == 6] == seen
    x, c = draw(4, 6, dtype=torch.float32), draw(4, 3, name="c", dtype=torch.float32)
    found, other = flow(x, c), flow(x, -c)
    assert (found.z - other.z).abs().max() > 1e-3
    torch.testing.assert_close(flow.inverse(found.z, c), x, rtol=1e-4, atol=1e-4)
    assert (flow.inverse(found.z, -c) - x).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{"identity": True, "scaling": True}, {"depth": 0}])
def test_identity_is_exact(kind: str, options: dict[str, Any]) -> None:
    with streams.seed_global_generator(0, "flow"):
        flow = Flow(FlowConfig(kind=kind, **{"depth": 5} | options), dim=7)
    x = draw(4, 7, dtype=torch.float32).requires_grad_()
    found = flow(x)
    assert torch.equal(found.z, x)
    assert torch.equal(flow.inverse(x), x)
    assert not found.log_det.any()
    assert not found.log_diagonal.any()
    direction = draw(4, 7, name="g", dtype=torch.float32)
    (gradient,) = torch.autograd.grad(found.z, x, direction)
    assert torch.equal(gradient, direction)
    assert (len(list(flow.parameters())) == 0) == (options == {"depth": 0})


def test_leading_dimensions_and_a_condition_that_broadcasts() -> None:
    flow = flow_of(5, 3, scaling=True).double()
    x, c = draw(2, 4, 5), draw(4, 3, name="c")
    found = flow(x, c)
    assert found.z.shape == found.log_diagonal.shape == (2, 4, 5)
    assert found.log_det.shape == (2, 4)
    for t in range(2):
        for i in range(4):
            one = flow(x[t, i], c[i])
            torch.testing.assert_close(found.z[t, i], one.z)
            torch.testing.assert_close(found.log_diagonal[t, i], one.log_diagonal)
    torch.testing.assert_close(flow.inverse(found.z, c), x)


def test_autocast_stays_outside() -> None:
    flow, x = flow_of(), draw(4, 6, dtype=torch.float32)
    expected = flow(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = flow(x)
        assert flow(x.bfloat16()).z.dtype == torch.float32
    assert torch.equal(found.z, expected.z)
    assert torch.equal(found.log_det, expected.log_det)


# --- numbers that the REVISION of every method with a flow stands for --------------------------


def wave(*shape: int, shift: float) -> Tensor:
    n = torch.Size(shape).numel()
    return torch.sin(1.7 * torch.arange(n, dtype=torch.float64) + shift).view(shape)


def measured(kind: str) -> dict[str, float]:
    flow = flow_of(5, 3, kind=kind, depth=4, hidden=2, scaling=True).double()
    with torch.no_grad():
        for place, parameter in enumerate(flow.parameters()):
            parameter.copy_(0.3 * wave(*parameter.shape, shift=place))
    found = flow(wave(4, 5, shift=0.5), wave(4, 3, shift=0.2))
    weights = wave(4, 5, shift=0.9)
    return {
        "z": (found.z * weights).sum().item(),
        "log_det": found.log_det.sum().item(),
        "log_diagonal": (found.log_diagonal * weights).sum().item(),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_golden_values(kind: str) -> None:
    """Other numbers: raise the REVISION of every method that has a flow, then
    `python -m tests.trainables.methods.test_flows`."""
    known = json.loads(GOLDEN.read_text())
    assert measured(kind) == pytest.approx(known[kind], rel=1e-9)


if __name__ == "__main__" and not sys.argv[1:]:
    GOLDEN.write_text(json.dumps({kind: measured(kind) for kind in KINDS}, indent=2) + "\n")
