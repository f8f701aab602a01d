"""Choose a trial's device, check its precision, and measure how much memory the trial takes."""

import os
import re
from pathlib import Path

import torch
from torch import Tensor

from trainables.words.errors import ConfigError

AMPERE = (8, 0)  # compute capability of NVIDIA's first GPUs with bfloat16 arithmetic
# Linux: writing "5" to the first file resets the peak that the second one shows as VmHWM.
RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
SLACK = 64 << 20  # bytes that a process may free between the reset and the check


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


class PeakMemory:
    """Watch the memory in use from now on.

    On a GPU this is the memory that torch has allocated there, otherwise that of the process.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_known = True
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        if os.access(RESET, os.W_OK):
            RESET.write_text("5")
        peak, present = _read_status("VmHWM"), _read_status("VmRSS")
        # A system may ignore the reset; the peak is then that of an earlier trial.
        self.is_known = peak is not None and present is not None and peak < present + SLACK

    def read(self) -> int | None:
        """Return the largest number of bytes in use so far; None if the system cannot tell."""
        if not self.is_known:
            return None
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return _read_status("VmHWM")


def _read_status(field: str) -> int | None:
    """Read a size from the process's status, in bytes; None if the system does not have it."""
    if not STATUS.exists():
        return None
    found = re.search(rf"{field}:\s*(\d+) kB", STATUS.read_text())
    return None if found is None else 1024 * int(found[1])
