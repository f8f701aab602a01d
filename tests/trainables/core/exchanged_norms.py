"""What SyncBatchNorm computes, for processes without GPUs: a stand-in for its forward pass."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


class Summed(torch.autograd.Function):
    """The sum over processes; a gradient of it is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        total = grad.clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def forward(norm: nn.SyncBatchNorm, x: Tensor) -> Tensor:
    """[B, C, …] of this process, by mean and variance of all processes' images.

    Ioffe and Szegedy, "Batch normalization", ICML 2015, Algorithm 1, with sums over all.
    """
    assert norm.running_mean is not None and norm.running_var is not None
    if not norm.training:
        return F.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        )
    others = [axis for axis in range(x.dim()) if axis != 1]
    shape = [1, -1, *[1] * (x.dim() - 2)]
    count = x.new_tensor([float(x.numel() // x.shape[1])])
    dist.all_reduce(count, group=norm.process_group)
    mean = Summed.apply(x.sum(others), norm.process_group) / count
    apart = x - mean.view(shape)
    variance = Summed.apply(apart.square().sum(others), norm.process_group) / count
    with torch.no_grad():
        assert norm.momentum is not None and norm.num_batches_tracked is not None
        norm.num_batches_tracked.add_(1)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * count / (count - 1), norm.momentum)
    scaled: Tensor = apart * (variance + norm.eps).rsqrt().view(shape)
    return scaled * norm.weight.view(shape) + norm.bias.view(shape)


def stand_in() -> None:
    """From now on, in this process."""
    nn.SyncBatchNorm.forward = forward  # type: ignore[assignment,method-assign]
