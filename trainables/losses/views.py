"""The v-th image of each class in a batch as view v of the class, whatever the order of classes.

Shape legend: B items of a batch, compared with itself.

Losses that pair images of a class (N-pair, HypViT) are told of views by their papers' batches,
in which classes stand together, equally many images each. Views are read from the labels here, so
that nothing is paired wrongly where a batch is arranged otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

PAIRS_UP = "pairs up the images of a class"

if TYPE_CHECKING:
    from trainables.config.sections import Trial
    from trainables.losses.base import Traits


def compare_classes(labels: Tensor) -> Tensor:
    """Map [B, S] → [B, B] bool, by the first label: these losses take one label an item."""
    first = labels[:, 0]
    return first[:, None] == first[None, :]


def number_views(same: Tensor) -> Tensor:
    """Map same [B, B] → [B] int64: how many items of the item's class stand before it."""
    return same.long().tril(-1).sum(-1)


def check_one_label(trial: Trial, method: Traits, why: str) -> None:
    """Refuse methods that give an item several labels.

    Args:
        why: what the loss does for which it needs one.

    Raises:
        ValueError: the trial's method does.
    """
    if method.label_sets:
        raise ValueError(
            f"method {trial.method.name} gives an image several labels, and loss {trial.loss.name} "
            f"{why}: turn mixing off or take another loss"
        )
