"""Choose a trial's device and check that it supports bfloat16."""

import re

import torch
from torch import Tensor

from trainables.words.errors import ConfigError

AMPERE = (8, 0)  # compute capability of NVIDIA's first GPUs with bfloat16 arithmetic


def resolve_device(name: str) -> torch.device:
    """Return the device with this name; "auto" is CUDA if there is a GPU, else the CPU.

    Raises:
        ConfigError: the name is invalid, or this machine does not have the device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:(0|[1-9][0-9]?))?", name):
        raise ConfigError("device", f"{name!r} is no device name", "Give auto, cpu, cuda or cuda:N")
    device = torch.device(name)
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= n_gpus:
        raise ConfigError(
            "device",
            f"{name} is none of the {n_gpus} CUDA devices that torch {torch.__version__} sees",
            "Use --device cpu, or install a torch built for this GPU",
        )
    return device


def list_devices(name: str) -> list[str]:
    """List the devices over which to spread processes: all GPUs for "cuda", else the named one."""
    device = resolve_device(name)
    if str(device) == "cuda":  # without the number of a GPU
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [str(device)]


def to_full_precision(x: Tensor) -> Tensor:
    """Convert float16 and bfloat16, which autocast returns, to float32; keep float64."""
    return x if x.dtype == torch.float64 else x.float()


def check_bf16(device: torch.device) -> None:
    """Refuse an NVIDIA GPU that only emulates bfloat16, which then is slower than float32."""
    if device.type != "cuda" or torch.version.hip is not None:  # a CPU or a GPU of AMD
        return
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < AMPERE:
        raise ConfigError(
            "training.precision",
            f"This GPU does not compute in bf16: its compute capability, {major}.{minor}, is "
            f"below {AMPERE[0]}.{AMPERE[1]}",
            "Set training.precision: fp32, or use another GPU",
        )
