"""Top-k accuracy of a classifier (closed set: CIFAR, ImageNet)."""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.errors import ConfigError, TrialFailure
from trainables.evaluation.metric import metric


def top_k_accuracy(logits: Tensor, labels: Tensor, k: int) -> float:
    """Return share of items whose class is among the k classes of largest logit; in [0, 1].

    Equal logits: the first class comes first. k ≥ classes gives 1.

    Args:
        logits: [N, C], larger is more likely. labels: [N] int64, columns of `logits`.
    """
    classes = logits.shape[1]
    if len(logits) != len(labels) or len(labels) == 0:
        raise ConfigError("logits", f"{len(logits)} rows and {len(labels)} labels are not as many")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        fault = f"{int(labels.min())} to {int(labels.max())} are no columns of {classes} logits"
        raise ConfigError("labels", fault)
    if torch.isnan(logits).any():
        raise TrialFailure("evaluation: a logit is not a number")
    own = logits.gather(1, labels[:, None])
    column = torch.arange(classes, device=logits.device)
    before = (logits > own) | ((logits == own) & (column < labels[:, None]))
    return float((before.sum(1) < k).double().mean())


@metric("top_1_accuracy", reads="logits", unit="%")
def top_1_accuracy(logits: Tensor, labels: Tensor) -> float:
    return top_k_accuracy(logits, labels, 1)


@metric("top_5_accuracy", reads="logits", unit="%")
def top_5_accuracy(logits: Tensor, labels: Tensor) -> float:
    return top_k_accuracy(logits, labels, 5)
