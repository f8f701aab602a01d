"""Views: the v-th image of a class in a batch is view v of the class.

Shape legend: B items of a batch, compared with itself.

Losses that pair images of a class (N-pair, HypViT) assume batches in which each class has equally
many adjacent images. Views are computed from the labels here, so that any order is paired rightly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

PAIRS_UP = "pairs up the images of a class"

if TYPE_CHECKING:
    from trainables.config.sections import Trial
    from trainables.losses.base import Traits


def compare_classes(labels: Tensor) -> Tensor:
    """Return which items have the same first label, [B, B] bool, for labels [B, S]."""
    first = labels[:, 0]
    return first[:, None] == first[None, :]


def number_views(same: Tensor) -> Tensor:
    """Return for each item the number of earlier items of its class, [B] int64."""
    return same.long().tril(-1).sum(-1)


def check_one_label(trial: Trial, method: Traits, why: str) -> None:
    """Refuse a method that gives an item several labels.

    Args:
        trial: the trial's configuration.
        method: what the trial's method requires.
        why: what the loss does that needs one label, as the end of a sentence.

    Raises:
        ValueError: the method gives an item several labels.
    """
    if method.label_sets:
        raise ValueError(
            f"method {trial.method.name} gives an image several labels, and loss {trial.loss.name} "
            f"{why}: turn mixing off or take another loss"
        )
