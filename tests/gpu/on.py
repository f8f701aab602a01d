"""Where these tests compute, and how two devices are compared.

On the first CUDA device; with ABLATE_TEST_DEVICE=cpu all of it runs on the CPU against the CPU,
which shows that the tests run, not that a GPU is right. What is compared is float64 on the CPU, the
same draws for all: on the device in float64, and in float32.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

VARIABLE = "ABLATE_TEST_DEVICE"
# Of the largest entry of all that is compared. Float64 differs in the order of additions. Float32
# has 6e-8 a number, and losses take exponentials of tens times a cosine.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}


def tried() -> torch.device:
    return torch.device(os.environ.get(VARIABLE, "cuda"))


def absent() -> str | None:
    """Why nothing can be tried here; None: it can."""
    if tried().type == "cpu" or torch.cuda.is_available():
        return None
    return f"no CUDA device for torch {torch.__version__}; {VARIABLE}=cpu rehearses on the CPU"


class SameDraws(TorchFunctionMode):
    """Within, all draws from a generator of the CPU are made there, in float64, and brought to the
    device and type that were asked for: devices, and types, draw differently."""

    DRAWS = (torch.rand, torch.randn, torch.randint, torch.randperm)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if func not in self.DRAWS or options.get("generator") is None:
            return func(*args, **options)
        device, dtype = options.pop("device", None), options.pop("dtype", None)
        if func in (torch.rand, torch.randn):
            dtype = dtype or torch.get_default_dtype()
            return func(*args, **options, dtype=torch.float64).to(device=device, dtype=dtype)
        return func(*args, **options, dtype=dtype).to(device)
