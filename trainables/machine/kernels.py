"""Multiply matrices on the CPU by the faster library, and describe what decides the last bits.

For float32 torch uses MKL for products and oneDNN for convolutions. MKL uses AVX-512 only on
Intel's processors, oneDNN on all; on the processors in `ONEDNN_IS_QUICKER` its product takes half
the time. Heads, flows and evaluation therefore use the faster one. The choice changes the last
bits, as the processor does; ids depend on neither.

Shape legend: B rows · F features in · D features out · `...` leading dimensions.
"""

import os
import platform
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

# prefixes of the variables that choose kernels; the number of threads is read from torch
KERNEL_VARIABLES = ("MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "ATEN_CPU_CAPABILITY")
# keys of /proc/cpuinfo on x86 and on ARM that do not differ between cores or change with time
PROCESSOR_KEYS = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)
# vendor and family of processors where oneDNN was measured to be faster
# (`tests/benchmarks/RESULTS.md`); on AMD's family 25 both are equal (831 and 842 µs)
ONEDNN_IS_QUICKER = (("AuthenticAMD", "26"),)
SMALLEST = 1 << 14  # entries of the second matrix; below, the check costs as much as it saves


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


@cache
def is_onednn_quicker() -> bool:
    """Return whether torch has oneDNN and MKL, and oneDNN was faster on this kind of processor."""
    fields = dict(re.findall(r"^(.+?)\s*: (.*)$", detect_processor(), re.M))
    is_measured = (fields.get("vendor_id"), fields.get("cpu family")) in ONEDNN_IS_QUICKER
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    # a private name of torch; if it disappears, MKL is used
    has_product = has_onednn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return is_measured and has_avx512 and has_mkl and has_product


def uses_onednn(a: Tensor, b: Tensor) -> bool:
    """Return whether oneDNN is to compute the product a bᵀ of a [A, E] and b [B, E].

    OneDNN computes no gradient. The answer depends neither on the values nor on A.
    """
    is_supported = a.dtype == b.dtype == torch.float32 and b.device.type == "cpu"
    needs_grad = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    return is_supported and not needs_grad and b.numel() >= SMALLEST and is_onednn_quicker()


def onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b by oneDNN, in float32 on a CPU, without a gradient.

    Shape:
        x [B, F] and weight [D, F], either of which may be a transposed view; bias [D].
    """
    x, weight = (
        matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()
        for matrix in (x, weight)
    )
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


class Linear(nn.Linear):
    """Compute y = x Wᵀ + b like `nn.Linear`, up to the last bits, by the faster library.

    A layer uses the same library for all batches. Higher derivatives work too.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return x Wᵀ + b, [..., F] → [..., D]."""
        is_on_cpu = x.device.type == "cpu" and x.dtype == self.weight.dtype == torch.float32
        is_matrix = x.dim() >= 2 and x.numel() > 0
        is_large = self.weight.numel() >= SMALLEST  # below, the check costs as much as it saves
        if not (is_on_cpu and is_matrix and is_large and is_onednn_quicker()):
            return super().forward(x)
        # compilers and `torch.func` need torch's own operator
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return super().forward(x)
        rows = x if x.dim() == 2 else x.reshape(-1, self.in_features)
        y: Tensor = _Product.apply(rows, self.weight, self.bias)
        return y if x.dim() == 2 else y.view(*x.shape[:-1], self.out_features)


class _Product(torch.autograd.Function):
    """Differentiate by oneDNN too: ∂L/∂x = g W, ∂L/∂W = gᵀ x, ∂L/∂b = Σ_B g."""

    # no `setup_context`: it would take a quarter of the time of a head's product
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn_product(x, weight, bias)

    @staticmethod
    def backward(
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of x, W and b; `apply` lets them be differentiated again."""
        (g,), (x, weight) = gradients, ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            _Product.apply(g, weight.t(), None) if to_x else None,
            _Product.apply(g.t(), x.t(), None) if to_weight else None,
            g.sum(0) if to_bias else None,
        )
