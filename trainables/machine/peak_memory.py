"""Measure how much memory a trial takes, on its GPU or else in its process."""

import os
import re
from pathlib import Path

import torch

# Linux: writing "5" to the first file resets the peak that the second one shows as VmHWM.
RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def reset_peak_memory(device: torch.device) -> None:
    """Forget the peak of what this process did before."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif os.access(RESET, os.W_OK):
        RESET.write_text("5")


def read_peak_memory(device: torch.device) -> int | None:
    """Return the largest number of bytes in use since the last reset; None if that is unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if not os.access(RESET, os.W_OK):  # the peak may be that of an earlier trial
        return None
    peak = re.search(r"VmHWM:\s*(\d+) kB", STATUS.read_text())
    return None if peak is None else 1024 * int(peak[1])
