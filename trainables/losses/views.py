"""Views: the v-th image of a class in a batch is view v of the class.

Losses that pair images of a class (N-pair, HypViT) assume batches in which each class has equally
many adjacent images. Views are computed from the labels here, so that any order is paired rightly.
"""

from torch import Tensor

from trainables.losses.base import BatchNeeds, Loss, Traits, Trial


class ViewLoss(Loss):
    """Base of losses that pair the images of a class, and so need one label for each image."""

    batch = BatchNeeds(per_class=2, layout="class_major")

    @classmethod
    def check(cls, trial: Trial, method: Traits) -> None:
        check_one_label(trial, method, "pairs up the images of a class")


def number_views(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return which items have the same class, [B, B] bool, and each item's view, [B] int64.

    An item's view is its number, from 0, among the items of its class. The class of an item is the
    first of its labels[B, S].
    """
    first = labels[:, 0]
    same_class = first[:, None] == first[None, :]
    return same_class, same_class.long().tril(-1).sum(-1)


def check_one_label(trial: Trial, method: Traits, reason: str) -> None:
    """Refuse a method that gives an image several labels; `reason` says what the loss does."""
    if method.label_sets:
        raise ValueError(
            f"method {trial.method.name} gives an image several labels, and loss {trial.loss.name} "
            f"{reason}. Turn mixing off or take another loss."
        )
