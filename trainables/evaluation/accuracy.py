"""Top-k accuracy of a classifier (closed set: CIFAR, ImageNet)."""

import torch
from torch import Tensor

from trainables.evaluation.metric import metric
from trainables.words.errors import ConfigError, TrialFailure


def top_k_accuracy(logits: Tensor, labels: Tensor, k: int) -> float:
    """Return the share of items whose class is among the k classes of largest logit.

    Of equal logits the first class ranks first. The share is 1 if k is at least C.

    Args:
        logits: [N, C], larger is more likely.
        labels: [N] int64, columns of `logits`.
        k: number of top classes among which the item's class must be.
    """
    classes = logits.shape[1]
    if len(logits) != len(labels) or len(labels) == 0:
        raise ConfigError(
            "logits",
            f"there are {len(logits)} rows of logits and {len(labels)} labels",
            "Give one label for each row, and one row or more",
        )
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= classes:
        raise ConfigError(
            "labels",
            f"labels go from {lowest} to {highest}, and the logits have {classes} columns",
            "Give for each item the column of its class",
        )
    if torch.isnan(logits).any():
        raise TrialFailure("evaluation: a logit is not a number")
    target = logits.gather(1, labels[:, None])
    column = torch.arange(classes, device=logits.device)
    ranks_above = (logits > target) | ((logits == target) & (column < labels[:, None]))
    return float((ranks_above.sum(1) < k).double().mean())


@metric("top_1_accuracy", reads="logits")
def top_1_accuracy(logits: Tensor, labels: Tensor) -> float:
    return top_k_accuracy(logits, labels, 1)


@metric("top_5_accuracy", reads="logits")
def top_5_accuracy(logits: Tensor, labels: Tensor) -> float:
    return top_k_accuracy(logits, labels, 5)
