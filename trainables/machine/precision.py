"""What a backbone computes in, and what leaves it: float32 at the least.

bfloat16 changes numbers (three digits in place of seven, in each product of the backbone), and so
is part of a trial's identity: `training.precision`. In evaluation it holds too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.errors import ConfigError

AMPERE = (8, 0)  # compute capability of NVIDIA's first GPUs with bfloat16 arithmetic


def full(x: Tensor) -> Tensor:
    """float32 of float16 and bfloat16, which autocast leaves; float64, and float32, as they are."""
    return x if x.dtype == torch.float64 else x.float()


def check_bf16(device: torch.device) -> None:
    """That a device computes in bfloat16: a GPU of its own, a processor by whatever it has.

    Raises:
        ConfigError: a GPU that would convert each number to and fro, which is slower than float32,
            and for which some kernels are missing.
    """
    if device.type != "cuda" or torch.version.hip is not None:
        return
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < AMPERE:
        raise ConfigError(
            "training.precision",
            f"bf16 on a GPU of compute capability {major}.{minor}",
            f"one from {AMPERE[0]}.{AMPERE[1]} on, which computes in it",
            "Set training.precision: fp32, or take another GPU",
        )
