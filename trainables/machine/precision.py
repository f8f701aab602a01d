"""Features leave a backbone in float32 at the least, whatever it computes in."""

from __future__ import annotations

import torch
from torch import Tensor


def full(x: Tensor) -> Tensor:
    """float32 of float16 and bfloat16, which autocast leaves; float64, and float32, as they are."""
    return x if x.dtype == torch.float64 else x.float()
