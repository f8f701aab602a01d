"""Which device a trial runs on, and what its backbone computes in there.

bfloat16 changes numbers (three digits in place of seven, in each product of the backbone), and so
is part of a trial's identity: `training.precision`. In evaluation it holds too.
"""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor

from trainables.errors import ConfigError

AMPERE = (8, 0)  # compute capability of NVIDIA's first GPUs with bfloat16 arithmetic


def resolve_device(name: str) -> torch.device:
    """Return the device of a name; "auto" is CUDA where there is one, else the CPU.

    Raises:
        ConfigError: not a device, or one that this machine does not have.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device: torch.device | None = None
    with suppress(RuntimeError):
        device = torch.device(name)
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError("device", f"{name!r} is none of auto, cpu, cuda and cuda:N")
    present = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= present:
        raise ConfigError(
            "device",
            f"{name} is none of the {present} CUDA devices that torch {torch.__version__} sees: "
            "use --device cpu, or install a torch built for this GPU",
        )
    return device


def list_devices(name: str) -> list[str]:
    """Return the devices that processes take in turn: of "cuda" all that there are, else the one
    named.

    Raises:
        ConfigError: as `resolve_device`.
    """
    device = resolve_device(name)
    if str(device) == "cuda":
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [str(device)]


def describe_device(device: torch.device) -> str:
    """Return `cpu`, or `cuda (NVIDIA H200)`."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return device.type


def to_full_precision(x: Tensor) -> Tensor:
    """Return float32 of float16 and bfloat16, which autocast leaves; float64, and float32, as they
    are."""
    return x if x.dtype == torch.float64 else x.float()


def check_bf16(device: torch.device) -> None:
    """Check that a device computes in bfloat16: a GPU of its own, a processor by whatever it has.

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
            f"a GPU of compute capability {major}.{minor} does not compute in bf16, as those from "
            f"{AMPERE[0]}.{AMPERE[1]} on do: set training.precision: fp32, or take another GPU",
        )
