"""Frozen BatchNorm folded into the convolution before it: the same function, less work.

    conv(x; W) · s + t,  s = γ / √(σ² + ε),  t = β − μ s    =    conv(x; s W) + t

With fixed statistics this is exact but for rounding, and γ, β and W still train: s W and t are
computed anew at each pass, and the gradient goes through them. A pass over each feature map
forward and two backward are saved, which for small networks is a tenth of a step.

Shape legend: B batch · C channels · H, W of a map · k side of a kernel.
"""

from collections import Counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

REVISION = 1  # raise by hand when a folded trial's numbers change
Pair = tuple[int, int]


class FoldedConv2d(nn.Conv2d):
    """A convolution that does the scaling and shifting of the norm after it.

    `weight` is the convolution's own parameter; the norm keeps its own, under its own name.
    same: TensorFlow's padding, as timm's Conv2dSame has it.
    """

    def __init__(self, conv: nn.Conv2d, norm: "FoldedNorm", *, same: bool) -> None:
        """Take the parameters of `conv` without copies. same: whether it pads like TensorFlow."""
        names = ("kernel_size", "stride", "padding", "dilation", "groups")
        settings: Any = {name: getattr(conv, name) for name in names}
        with torch.device("meta"):
            super().__init__(conv.in_channels, conv.out_channels, bias=False, **settings)
        self.weight, self.bias, self.same = conv.weight, conv.bias, same
        self._norm = (norm,)  # in a tuple, so that it is no submodule with names of its own

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, C, H, W] to what the norm after the convolution would give: conv(x; s W) + t."""
        # put the scale s and the shift t of the norm into the weight and the bias
        norm = self._norm[0]
        scale = (norm.running_var + norm.eps).rsqrt()
        if norm.weight is not None:
            scale = scale * norm.weight
        bias = -norm.running_mean * scale
        bias = bias if norm.bias is None else bias + norm.bias
        bias = bias if self.bias is None else bias + self.bias * scale
        weight = self.weight * scale[:, None, None, None]
        # pad as TensorFlow does, in the convolution if both sides get the same, else by F.pad
        padding: Pair = self.padding  # type: ignore[assignment]
        if self.same:
            pad_y, pad_x = (self._count_missing(x.shape[2 + axis], axis) for axis in (0, 1))
            if pad_y % 2 == 0 and pad_x % 2 == 0:
                padding = (pad_y // 2, pad_x // 2)
            else:
                x = F.pad(x, (pad_x // 2, pad_x - pad_x // 2, pad_y // 2, pad_y - pad_y // 2))
        # use SmallDepthwise on a CPU, where it is faster if the kernel is larger than the output
        k = self.kernel_size[0]
        is_depthwise = self.groups == self.in_channels == self.out_channels
        is_small = (x.shape[2] + 2 * padding[0] - k) // self.stride[0] + 1 < k
        in_float32 = x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        if is_depthwise and is_small and in_float32 and self.dilation == (1, 1):
            out: Tensor = SmallDepthwise.apply(x, weight, bias, self.stride, padding)
            return out
        return F.conv2d(x, weight, bias, self.stride, padding, self.dilation, self.groups)

    def _count_missing(self, side: int, axis: int) -> int:
        """Count the zeros to add along an axis, so that the map has ⌈side / stride⌉ places."""
        stride, reach = self.stride[axis], (self.kernel_size[axis] - 1) * self.dilation[axis]
        return max((-(-side // stride) - 1) * stride + reach + 1 - side, 0)


class FoldedNorm(nn.Module):
    """What remains of a frozen BatchNorm: its tensors, and the activation after it if any."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        """Take the tensors of `norm` under the same names, and modules such as its activation."""
        super().__init__()
        self.eps = norm.eps
        self.register_parameter("weight", norm.weight)
        self.register_parameter("bias", norm.bias)
        for name, buffer in norm.named_buffers(recurse=False):
            self.register_buffer(name, buffer)
        for name, child in norm.named_children():  # timm's drop and act
            self.add_module(name, child)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the norm's modules, such as an activation; FoldedConv2d has applied the norm."""
        for child in self.children():
            # On a CPU an in-place ReLU6 is slower, because torch makes a copy and copies it back.
            is_slow = isinstance(child, nn.ReLU6) and x.device.type == "cpu"
            x = F.relu6(x) if is_slow else child(x)
        return x


class SmallDepthwise(torch.autograd.Function):
    """Depthwise convolution of maps smaller than the kernel, on the CPU.

    The gradient of the weights is summed tap by tap over the places where a tap meets the map:
    for 5 × 5 on 2 × 2, 84 of 100 products are with padding. oneDNN takes 3 to 20 times as long.
    """

    @staticmethod
    def forward(  # noqa: PLR0917
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, stride: Pair, pad: Pair
    ) -> Any:
        """Return torch's depthwise convolution of x [B, C, H, W]; keep what `backward` needs."""
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.pad = stride, pad
        return F.conv2d(x, weight, bias, stride, pad, 1, x.shape[1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Return the gradients of x, weight and bias; sum that of weight by kernel entry (tap)."""
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            settings = (ctx.stride, ctx.pad, (1, 1), False, (0, 0), x.shape[1])
            inputs = (grad, x, weight, None, *settings, (True, False, False))
            grad_x = torch.ops.aten.convolution_backward(*inputs)[0]
        if ctx.needs_input_grad[1]:
            grad_weight = torch.zeros_like(weight)
            rows, columns = (
                [_find_overlap(tap, ctx, x, grad, axis) for tap in range(weight.shape[2 + axis])]
                for axis in (0, 1)
            )
            # sum the products of those outputs and inputs that meet at entry (i, j) of the kernel
            for i, (out_y, in_y) in enumerate(rows):
                for j, (out_x, in_x) in enumerate(columns):
                    product = grad[:, :, out_y, out_x] * x[:, :, in_y, in_x]
                    grad_weight[:, 0, i, j] = product.sum((0, 2, 3))
        if ctx.needs_input_grad[2]:
            grad_bias = grad.sum((0, 2, 3))
        return grad_x, grad_weight, grad_bias, None, None


def _find_overlap(tap: int, ctx: Any, x: Tensor, grad: Tensor, axis: int) -> tuple[slice, slice]:
    """Return the outputs on an axis whose input at kernel entry `tap` exists, and these inputs."""
    stride, offset = ctx.stride[axis], tap - ctx.pad[axis]
    first = max(0, -(offset // stride))
    last = min(grad.shape[2 + axis], (x.shape[2 + axis] - 1 - offset) // stride + 1)
    if last <= first:
        return slice(0, 0), slice(0, 0)
    begin = first * stride + offset
    return slice(first, last), slice(begin, (last - 1) * stride + offset + 1, stride)


def fold_frozen_norms(model: nn.Module, image: Tensor) -> int:
    """Fold each BatchNorm2d that alone reads a convolution's output into that convolution.

    Names of parameters and buffers stay as they are. Return how many norms were folded.

    Args:
        model: a backbone in evaluation mode.
        image: [1, 3, S, S], passed once to find which modules read which tensors.
    """
    # pass the image, and record which modules and operations read which tensors
    reads = _Reads()
    observed = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d)]
    handles = [module.register_forward_hook(reads.record_call) for module in observed]
    with torch.no_grad(), reads:
        model.forward_features(image)  # type: ignore[operator]
    for handle in handles:
        handle.remove()
    # replace each convolution and the norm after it
    names = {module: name for name, module in model.named_modules()}
    pairs = reads.find_pairs()
    for conv, norm in pairs:
        remainder = FoldedNorm(norm)
        model.set_submodule(names[norm], remainder)
        model.set_submodule(names[conv], FoldedConv2d(conv, remainder, same=_is_same(conv)))
    return len(pairs)


class _Reads(TorchFunctionMode):
    """Count how often each tensor is an argument of what makes another, and record its maker."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[int] = Counter()  # by id of a tensor: how often it was an argument
        self.calls: Counter[nn.Module] = Counter()  # how often a module ran
        self.makers: dict[int, nn.Conv2d] = {}  # by id of a tensor: the convolution that made it
        self.inputs: list[tuple[nn.BatchNorm2d, int]] = []  # norms, with the id of what they read
        self.alive: list[Tensor] = []  # all tensors, so that none takes the id of another

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func`, and count a read of each tensor argument if the result has tensors."""
        result = func(*args, **(kwargs or {}))
        arguments, results = (
            {id(leaf): leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)}
            for values in ((args, kwargs), result)
        )
        if results:  # not if only a property such as the shape was read
            self.reads.update(arguments.keys())
        self.alive += [*arguments.values(), *results.values()]
        return result

    def record_call(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Note by id which tensor a convolution made or a norm read; this is a forward hook."""
        self.calls[module] += 1
        if isinstance(module, nn.Conv2d):
            self.makers[id(output)] = module
        elif isinstance(module, nn.BatchNorm2d):
            self.inputs.append((module, id(inputs[0])))

    def find_pairs(self) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
        """Return all pairs of a convolution and a norm after it that can be folded into it."""
        pairs = []
        for norm, tensor in self.inputs:
            # skip a norm without statistics, or that does not alone read a convolution's output
            conv = self.makers.get(tensor)
            if conv is None or norm.running_mean is None or self.reads[tensor] != 1:
                continue
            ran_once = self.calls[norm] == self.calls[conv] == 1
            # check that the convolution uses its weight as it is, and pads with zeros if at all
            is_plain = type(conv) is nn.Conv2d or _is_same(conv)
            pads_zeros = conv.padding_mode == "zeros" and not isinstance(conv.padding, str)
            if ran_once and is_plain and pads_zeros:
                pairs.append((conv, norm))
        return pairs


def _is_same(conv: nn.Conv2d) -> bool:
    from timm.layers.conv2d_same import Conv2dSame

    return type(conv) is Conv2dSame
