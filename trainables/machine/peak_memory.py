"""Measure how much memory a trial takes, on its GPU or else in its process."""

import os
import re
from pathlib import Path

import torch

# Linux: writing "5" to the first file resets the peak that the second one shows as VmHWM.
RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
SLACK = 64 << 20  # bytes that a process may free between the reset and the check


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
