"""Draw batches of M images of each of K classes from (seed, epoch) only.

There is no state: a resumed trial draws epoch e again and gets the same batches.
"""

from typing import Literal

import torch
from torch import Tensor

from trainables.streams import create_generator
from trainables.words.errors import ConfigError


def count_steps_per_epoch(images: int, batch_size: int) -> int:
    """Return ⌈images / batch_size⌉, at least 1."""
    return max(1, -(-images // batch_size))


def check_batch(batch_size: int, per_class: int, classes: int) -> None:
    """Check that batches can be drawn from this number of training classes.

    Raises:
        ConfigError: batch_size is no multiple of per_class, or needs more classes than train.
    """
    if batch_size % per_class:
        raise ConfigError(
            "training.batch_size",
            f"{batch_size} is not a multiple of per_class {per_class}",
            f"Give a multiple of {per_class}",
        )
    per_batch = batch_size // per_class
    if per_class > 1 and per_batch > classes:  # with per_class 1 a batch may repeat classes
        raise ConfigError(
            "training.batch_size",
            f"batches of {batch_size} images, {per_class} of each class, need {per_batch} training "
            f"classes, and data.split leaves {classes}",
            f"Give --set training.batch_size={classes * per_class}, or raise training.per_class. "
            "Either change makes another trial",
        )


def draw_epoch_batches(  # noqa: PLR0917
    labels: Tensor,
    batch_size: int,
    per_class: int,
    seed: int,
    epoch: int,
    layout: Literal["any", "class_major"] = "any",
) -> Tensor:
    """Return positions into `labels` for one epoch: [steps, batch_size] int64.

    With per_class M > 1 every batch has M images of each of K = batch_size / M different classes.
    All classes are drawn once, in random order, before any is drawn again, so that small classes
    are not neglected. A drawn class gives the next M of its images, which are in random order, and
    begins again after the last; only a class of fewer than M images gives an image twice.
    With per_class 1 all images come in random order, and the first ones fill up the last batch.

    Args:
        labels: [n] int64 class of each training image, 0 … C − 1, each class present.
        layout: "class_major" keeps the M images of a class together, "any" mixes the batch.

    Raises:
        ConfigError: batch_size is no multiple of M, or asks for more classes than there are.
    """
    if len(labels) == 0:
        raise ConfigError("data", "data.split leaves no training images", "Change data.split")
    sizes = torch.bincount(labels)
    check_batch(batch_size, per_class, len(sizes))
    generator = create_generator(seed, "sampler", epoch)
    steps = count_steps_per_epoch(len(labels), batch_size)
    if per_class == 1:
        order = torch.randperm(len(labels), generator=generator)
        return order[torch.arange(steps * batch_size) % len(labels)].view(steps, batch_size)

    per_batch = batch_size // per_class
    classes = _draw_class_turns(len(sizes), steps, per_batch, generator)
    visit = torch.arange(steps * per_batch) // len(sizes)  # how often the class was drawn before
    order = torch.randperm(len(labels), generator=generator)
    by_class = order[torch.argsort(labels[order], stable=True)]  # each class in random order
    starts = torch.cumsum(sizes, 0) - sizes
    # take the next M images of each drawn class, and begin again after the last image
    images_before = visit[:, None] * per_class + torch.arange(per_class)
    position = starts[classes, None] + images_before % sizes[classes, None]
    batches = by_class[position].view(steps, batch_size)
    if layout == "any":
        mixed = torch.rand(steps, batch_size, generator=generator).argsort(1)
        batches = batches.gather(1, mixed)
    return batches


def _draw_class_turns(
    classes: int, steps: int, per_batch: int, generator: torch.Generator
) -> Tensor:
    """Chain random orders of all classes; no batch has a class twice. [steps · per_batch]."""
    orders: list[Tensor] = []
    for n_drawn in range(0, steps * per_batch, classes):
        order = torch.randperm(classes, generator=generator)
        if n_begun := n_drawn % per_batch:  # classes that the last, incomplete batch has
            # The new order begins with classes that this batch lacks, which complete the batch.
            is_repeated = torch.isin(order, orders[-1][-n_begun:])
            fresh, n_missing = order[~is_repeated], per_batch - n_begun
            later = torch.cat([fresh[n_missing:], order[is_repeated]])
            later = later[torch.randperm(len(later), generator=generator)]
            order = torch.cat([fresh[:n_missing], later])
        orders.append(order)
    return torch.cat(orders)[: steps * per_batch]
