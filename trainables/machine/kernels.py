"""What decides the last bits of linear algebra on a CPU: libraries, processor, threads.

Of float32 matrices torch takes MKL for products and oneDNN for convolutions. MKL uses AVX-512 on
Intel's processors alone, oneDNN wherever there is any: on another maker's its product takes half
the time or less. Heads and evaluation multiply by the quicker one (`onednn_is_quicker`), which
decides the last bits as the processor does; no identity knows either.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

# By these MKL, oneDNN, OpenBLAS and torch are told which kernels to take. How many threads there
# are torch says itself, whoever told it.
TELLING = ("MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "ATEN_CPU_CAPABILITY")
COUNTS = "_NUM_THREADS"
# Of /proc/cpuinfo, on x86 and on ARM; the other lines say which core, and how fast just now.
OF_PROCESSOR = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)
SMALLEST = 1 << 14  # numbers of the second matrix; below, asking costs what the product saves


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


@cache
def onednn_is_quicker() -> bool:
    """Whether this processor has AVX-512, is none of Intel's, and torch has both libraries."""
    known = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    # torch gives it no name of its own; where it has another one day, MKL's is taken.
    there = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return known and avx512 and there and "GenuineIntel" not in processor()


def by_onednn(a: Tensor, b: Tensor) -> bool:
    """Whether `product` of these rows is both possible and the quicker: [A, E] and [B, E], of which
    no gradient is asked. The same for all `a` of one `b`."""
    taken = a.dtype == b.dtype == torch.float32 and b.device.type == "cpu"
    graph = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    return taken and not graph and b.numel() >= SMALLEST and onednn_is_quicker()


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b by oneDNN, float32 on a CPU, without a gradient.

    Args:
        x: [B, F]. weight: [D, F]; either may be a transposed view. bias: [D].
    """
    x, weight = _dense(x), _dense(weight)
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def _dense(x: Tensor) -> Tensor:
    return x if x.is_contiguous() or x.t().is_contiguous() else x.contiguous()
