"""Differentiable ranks: what losses share that smooth a metric of each query's ranking.

Shape legend: B queries · R references · P largest number of positives of a query · `...` leading
dimensions.

The rank of a positive p of query q is 1 plus the number of other items j that are closer to q. The
step H(s_qj − s_qp), which counts them, is replaced by a smooth function. Only the ranks of
positives are computed, so that memory is B · P · R and not B³.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

MOST_ENTRIES = 2**25  # of a block [rows, P, R] that is computed at once; 128 MB in float32


def gather_positives(score: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores of each query's positives, and which of these entries are in use.

    Args:
        score: [..., B, R]. pos: [B, R], above 0 for positives.

    Returns:
        [..., B, P] and bool [B, P]; a query with fewer than P positives has unused entries.
    """
    most = max(1, int((pos > 0).sum(-1).max()))
    weights, columns = pos.topk(most, dim=-1)
    return score.gather(-1, columns.expand(*score.shape[:-1], most)), weights > 0


def sum_steps(
    score: Tensor, start: Tensor, weights: Tensor, step: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return Σ_j w_qj · step(s_qj − start_qp), [..., B, P].

    Rows that do not fit into a block of MOST_ENTRIES are computed block by block, and once more
    in the backward pass, so that memory does not grow with B · P · R. The numbers are the same.

    Args:
        score: [..., B, R]. start: [..., B, P]. weights: [B, R].
    """

    def compute(score: Tensor, start: Tensor, weights: Tensor) -> Tensor:
        steps = step(score[..., None, :] - start[..., :, None])
        return (steps * weights[..., None, :]).sum(-1)

    if score[..., 0].numel() * score.shape[-1] * start.shape[-1] <= MOST_ENTRIES:
        return compute(score, start, weights)
    rows = max(1, MOST_ENTRIES // (score.shape[-1] * start.shape[-1]))
    tensors = (score, start, weights.expand(*score.shape[:-1], -1))
    sums = [
        checkpoint(compute, *block, use_reentrant=False, preserve_rng_state=False)
        for block in zip(*(torch.split(x.flatten(0, -2), rows) for x in tensors), strict=True)
    ]
    return torch.cat(sums).view(start.shape)


def average_over_queries(loss: Tensor, pos: Tensor) -> Tensor:
    """Return the mean of loss[..., B] over the queries with positives; 0 if there are none."""
    has_positives = (pos > 0).any(-1)
    kept = torch.where(has_positives, loss, 0)
    return (kept.sum(-1) / has_positives.sum(-1).clamp_min(1)).mean()


def add_queries(weights: Tensor) -> Tensor:
    """Return weights [B, B] in which each query weighs 1 in its own list."""
    return weights + torch.eye(len(weights), dtype=weights.dtype, device=weights.device)
