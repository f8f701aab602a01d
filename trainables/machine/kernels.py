"""What decides the last bits of linear algebra on a CPU: libraries, processor, threads."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

import torch

# By these MKL, oneDNN, OpenBLAS and torch are told which kernels to take. How many threads there
# are torch says itself, whoever told it.
TELLING = ("MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "ATEN_CPU_CAPABILITY")
COUNTS = "_NUM_THREADS"
# Of /proc/cpuinfo, on x86 and on ARM; the other lines say which core, and how fast just now.
OF_PROCESSOR = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)


def kernels() -> dict[str, object]:
    """For a key, under which a result is only found where it would come out to the bit again.

    It tells apart more than it need to: another build of torch may round as this one does.
    """
    told = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(TELLING) and not name.endswith(COUNTS)
    }
    return {
        "torch": [torch.__version__, torch.__config__.show()],
        "threads": torch.get_num_threads(),
        "variables": dict(sorted(told.items())),
        "processor": processor(),
    }


@cache
def processor() -> str:
    """This machine's, as far as the system tells."""
    told = [platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        first = cpuinfo.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        told += [line for line in first.splitlines() if line.split("\t")[0] in OF_PROCESSOR]
    return "\n".join(told)
