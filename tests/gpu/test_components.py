"""Every method with every loss: on the device what it is on the CPU, value and gradient."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.gpu import on, steps
from tests.trainables.components import method_options
from tests.trainables.core.divided_steps import max_difference
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS

CPU = torch.device("cpu")
each_type = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


@each_type
@pytest.mark.parametrize("method", list(METHODS))
def test_value_and_gradients(method: str, dtype: torch.dtype, device: torch.device) -> None:
    compared = 0
    for loss in LOSSES:
        proofs = steps.built(method_options(method), loss)
        if proofs is None:
            continue
        for fraction in (0.0, 0.6):
            expected = steps.stepped(copy.deepcopy(proofs), loss, CPU, torch.float64, fraction)
            results = steps.stepped(copy.deepcopy(proofs), loss, device, dtype, fraction)
            assert max_difference(expected, results) < on.TOLERANCE[dtype], (loss, fraction)
        compared += 1
    assert compared >= 8


@pytest.mark.parametrize(
    ("method", "loss"),
    [
        ({"name": "idml", "mixing": "none"}, "normsoftmax"),
        ({"name": "idml", "originals": "replaced", "metric": "plain"}, "normsoftmax"),
        ({"name": "idml", "mixing": "none", "uncertainty": "relu"}, "softmax"),
    ],
)
def test_value_and_gradients_of_options(
    method: dict[str, str], loss: str, device: torch.device
) -> None:
    """Those of classification, which no default is."""
    proofs = steps.built(method, loss)
    assert proofs is not None
    expected = steps.stepped(copy.deepcopy(proofs), loss, CPU, torch.float64)
    results = steps.stepped(copy.deepcopy(proofs), loss, device, torch.float64)
    assert max_difference(expected, results) < on.TOLERANCE[torch.float64]
