"""Every flow: on the device what it is on the CPU, value, inverse and gradient."""

from __future__ import annotations

import copy
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from tests.gpu import on
from tests.trainables.core.divided_steps import max_difference
from trainables import streams
from trainables.methods.flow import Flow, FlowConfig

KINDS = get_args(FlowConfig.model_fields["kind"].annotation)
DIM, ITEMS = 6, 9


def flow_of(kind: str, condition: int) -> Flow:
    config = FlowConfig(kind=kind, depth=4, width=16, gain=0.5)
    with streams.seed_global_generator(0, "flow"):
        flow = Flow(config, dim=DIM, condition_dim=condition)
        if flow.scale is not None:
            torch.nn.init.normal_(flow.scale)
    return flow


def flowed(
    flow: Flow, condition: int, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor | None]:
    flow = copy.deepcopy(flow).to(device, dtype)

    def drawn(name: str, width: int) -> Tensor:
        proofs = torch.randn(ITEMS, width, generator=streams.create_generator(0, name))
        return proofs.to(device, dtype).requires_grad_()

    x, options = drawn("x", DIM), drawn("c", condition) if condition else None
    results = flow(x, options)
    (results.z.square().sum() + results.log_det.sum()).backward()
    gradients: dict[str, Any] = {name: p.grad for name, p in flow.named_parameters()}
    return {
        "z": results.z,
        "log_det": results.log_det,
        "log_diagonal": results.log_diagonal,
        "inverse": flow.inverse(results.z, options),
        "x": x.grad,
        "condition": None if options is None else options.grad,
        **gradients,
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("condition", [0, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_value_inverse_and_gradients(
    kind: str, condition: int, dtype: torch.dtype, device: torch.device
) -> None:
    flow = flow_of(kind, condition)
    expected = flowed(flow, condition, torch.device("cpu"), torch.float64)
    results = flowed(flow, condition, device, dtype)
    assert max_difference(expected, results) < on.TOLERANCE[dtype]
