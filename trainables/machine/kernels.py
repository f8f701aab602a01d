"""What decides the last bits of linear algebra on a CPU: libraries, processor, threads.

Of float32 matrices torch takes MKL for products and oneDNN for convolutions. MKL uses AVX-512 on
Intel's processors alone, oneDNN wherever there is any: on the processors in `ONEDNN_IS_QUICKER` its
product takes half the time. Heads, flows and evaluation multiply by the quicker one, which decides
the last bits as the processor does; no identity knows either.

Shape legend: B rows · F features in · D features out · `...` leading dimensions.
"""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

# By these MKL, oneDNN, OpenBLAS and torch are told which kernels to take. How many threads there
# are torch says itself, whoever told it.
TELLING = ("MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "ATEN_CPU_CAPABILITY")
# Of /proc/cpuinfo, on x86 and on ARM; the other lines say which core, and how fast just now.
OF_PROCESSOR = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)
# Maker and family of the processors on which oneDNN's product was measured to be the quicker
# (`tests/benchmarks/RESULTS.md`). Of AMD's family 25 the two are equal: 831 and 842 µs.
ONEDNN_IS_QUICKER = (("AuthenticAMD", "26"),)
SMALLEST = 1 << 14  # numbers of the second matrix; below, asking costs what the product saves


def describe_kernels() -> dict[str, object]:
    """Return a key under which a result is only found where it would come out to the bit again.

    It tells apart more than it need to: another build of torch may round as this one does.
    """
    return {
        "torch": [torch.__version__, torch.__config__.show()],
        "threads": torch.get_num_threads(),
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(TELLING) and not name.endswith("_NUM_THREADS")
        },
        "processor": detect_processor(),
    }


@cache
def detect_processor() -> str:
    """Return what the system tells of this machine's processor."""
    words = [platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        first = cpuinfo.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        words += [line for line in first.splitlines() if line.split("\t")[0] in OF_PROCESSOR]
    return "\n".join(words)


@cache
def is_onednn_quicker() -> bool:
    """Return whether this processor is one of those that were measured, and torch has both
    libraries."""
    fields = dict(re.findall(r"^(.+?)\s*: (.*)$", detect_processor(), re.M))
    return (
        (fields.get("vendor_id"), fields.get("cpu family")) in ONEDNN_IS_QUICKER
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        # torch gives it no name of its own; where it has another one day, MKL's is taken.
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def uses_onednn(a: Tensor, b: Tensor) -> bool:
    """Return whether `product` of these rows is both possible and the quicker: [A, E] and [B, E],
    of which no gradient is asked. The same for all `a` of one `b`."""
    taken = a.dtype == b.dtype == torch.float32 and b.device.type == "cpu"
    graph = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    return taken and not graph and b.numel() >= SMALLEST and is_onednn_quicker()


def onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b by oneDNN, float32 on a CPU, without a gradient.

    Args:
        x: [B, F]. weight: [D, F]; either may be a transposed view. bias: [D].
    """
    x, weight = (
        each if each.is_contiguous() or each.t().is_contiguous() else each.contiguous()
        for each in (x, weight)
    )
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


class Linear(nn.Linear):
    """y = x Wᵀ + b, as `nn.Linear` in all but its last bits, differentiable as often. Of a layer
    either all products of matrices are oneDNN's or none, whatever its batches.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map x[..., F] → [..., D]."""
        is_quicker = (
            x.dim() >= 2
            and x.numel() > 0
            and self.weight.numel() >= SMALLEST
            and x.dtype == self.weight.dtype == torch.float32
            and x.device.type == "cpu"
            and is_onednn_quicker()
            # A compiler or `torch.func`, by which many configurations are one product of MKL's.
            and not torch.compiler.is_compiling()
            and not torch._C._are_functorch_transforms_active()
        )
        if not is_quicker:
            return super().forward(x)
        rows = x if x.dim() == 2 else x.reshape(-1, self.in_features)
        y: Tensor = _Product.apply(rows, self.weight, self.bias)
        return y if x.dim() == 2 else y.view(*x.shape[:-1], self.out_features)


class _Product(torch.autograd.Function):
    """∂L/∂x = g W, ∂L/∂W = gᵀ x, ∂L/∂b = Σ_B g, by products of the same kind."""

    # `setup_context` would serve `torch.func` too, and takes a quarter as long as a head's product.
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn_product(x, weight, bias)

    @staticmethod
    def backward(
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (g,), (x, weight) = gradients, ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            _Product.apply(g, weight.t(), None) if to_x else None,
            _Product.apply(g.t(), x.t(), None) if to_weight else None,
            g.sum(0) if to_bias else None,
        )
