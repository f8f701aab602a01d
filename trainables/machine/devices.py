"""Which device a trial runs on."""

from __future__ import annotations

import torch

from trainables.errors import ConfigError


def resolve_device(name: str) -> torch.device:
    """ "auto" is CUDA where there is one, else the CPU; "cpu", "cuda", "cuda:N" are themselves.

    Raises:
        ConfigError: not a device, or one that this machine does not have.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError("device", repr(name), "auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda":
        present = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= present:
            raise ConfigError(
                "device",
                f"{name}, while torch {torch.__version__} sees {present} CUDA devices",
                "one that is there",
                "Use --device cpu, or install a torch built for this GPU",
            )
    elif device.type != "cpu":
        raise ConfigError("device", repr(name), "auto, cpu, cuda or cuda:N")
    return device


def side_by_side(name: str) -> list[str]:
    """The devices that processes take in turn: of "cuda" all that there are, else the one named.

    Raises:
        ConfigError: as `resolve_device`.
    """
    device = resolve_device(name)
    if str(device) == "cuda":
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [str(device)]


def describe(device: torch.device) -> str:
    """`cpu`, or `cuda (NVIDIA H200)`."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return device.type
