"""Describe the processor and the kernels, which decide the last bits of results."""

import os
import platform
from functools import cache
from pathlib import Path

import torch

# prefixes of the variables that choose kernels; the number of threads is read from torch
KERNEL_VARIABLES = ("MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "ATEN_CPU_CAPABILITY")
# keys of /proc/cpuinfo on x86 and on ARM that do not differ between cores or change with time
PROCESSOR_KEYS = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)


def describe_kernels() -> dict[str, object]:
    """Return everything that may change the last bits of a result, as part of a cache key.

    The key is stricter than necessary: another build of torch may round equally.
    """
    return {
        "torch": [torch.__version__, torch.__config__.show()],
        "threads": torch.get_num_threads(),  # instead of the variables `…_NUM_THREADS`
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(KERNEL_VARIABLES) and not name.endswith("_NUM_THREADS")
        },
        "processor": detect_processor(),
    }


@cache
def detect_processor() -> str:
    """Return the system's description of this machine's processor."""
    lines = [platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        # the paragraph of the first core
        core = cpuinfo.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        lines += [line for line in core.splitlines() if line.split("\t")[0] in PROCESSOR_KEYS]
    return "\n".join(lines)
