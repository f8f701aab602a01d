"""Draw batches of M images of each of K classes from (seed, epoch) only.

There is no state: a resumed trial draws epoch e again and gets the same batches.
"""

from typing import Literal

import torch
from torch import Tensor

from trainables import streams
from trainables.errors import ConfigError


def count_steps_per_epoch(images: int, batch_size: int) -> int:
    """Return ⌈images / batch_size⌉, at least 1."""
    return max(1, -(-images // batch_size))


def check_batch(batch_size: int, per_class: int, classes: int) -> None:
    """Check that batches can be drawn from this number of training classes.

    Raises:
        ConfigError: batch_size is no multiple of per_class, or needs more classes than train.
    """
    if batch_size % per_class:
        fault = f"{batch_size} is not a multiple of per_class {per_class}"
        raise ConfigError("training.batch_size", f"{fault}. Give a multiple.")
    per_batch = batch_size // per_class
    if per_class > 1 and per_batch > classes:
        fault = f"{batch_size} at per_class {per_class} takes {per_batch} classes a batch, and "
        fault += f"data.split leaves {classes} training classes"
        remedy = f"Give --set training.batch_size={classes * per_class}, or more images of each "
        remedy += "class as training.per_class; with another batch it is another trial"
        raise ConfigError("training.batch_size", f"{fault}. {remedy}.")


def draw_epoch_batches(  # noqa: PLR0917
    labels: Tensor,
    batch_size: int,
    per_class: int,
    seed: int,
    epoch: int,
    layout: Literal["any", "class_major"] = "any",
) -> Tensor:
    """Return positions into `labels` for one epoch: [steps, batch_size] int64.

    per_class M > 1: every batch holds K = batch_size / M different classes. Classes take turns,
    each once in a permutation of all before any comes again, so that small classes are not
    forgotten; within a class, images take turns likewise (visit t of a class takes the places
    t·M … t·M + M − 1, cyclically, of its images in this epoch's order). An image stands twice in
    a batch only where its class has fewer than M.
    per_class 1: all images in random order; the last batch is filled from the order's start.

    Args:
        labels: [n] int64 class of each training image, 0 … C − 1, each class present.
        layout: "class_major" keeps the M images of a class together, "any" mixes the batch.

    Raises:
        ConfigError: batch_size is no multiple of M, or asks for more classes than there are.
    """
    if len(labels) == 0:
        raise ConfigError("data", "data.split leaves no training images. Change it.")
    sizes = torch.bincount(labels)
    check_batch(batch_size, per_class, len(sizes))
    generator = streams.create_generator(seed, "sampler", epoch)
    steps = count_steps_per_epoch(len(labels), batch_size)
    if per_class == 1:
        order = torch.randperm(len(labels), generator=generator)
        return order[torch.arange(steps * batch_size) % len(labels)].view(steps, batch_size)

    per_batch = batch_size // per_class
    classes = _draw_class_turns(len(sizes), steps, per_batch, generator)
    visit = torch.arange(steps * per_batch) // len(sizes)  # how often the class came before
    order = torch.randperm(len(labels), generator=generator)
    by_class = order[torch.argsort(labels[order], stable=True)]  # each class in random order
    starts = torch.cumsum(sizes, 0) - sizes
    # each visit of a class takes its next M images, and begins again after the last one
    turn = visit[:, None] * per_class + torch.arange(per_class)
    position = starts[classes, None] + turn % sizes[classes, None]
    batches = by_class[position].view(steps, batch_size)
    if layout == "any":
        mixed = torch.rand(steps, batch_size, generator=generator).argsort(1)
        batches = batches.gather(1, mixed)
    return batches


def _draw_class_turns(
    classes: int, steps: int, per_batch: int, generator: torch.Generator
) -> Tensor:
    """Chain permutations of all classes, no class twice in a batch: [steps · per_batch]."""
    turns: list[Tensor] = []
    for drawn in range(0, steps * per_batch, classes):
        order = torch.randperm(classes, generator=generator)
        if taken := drawn % per_batch:
            # The previous permutation ended with a part of a batch, which this one completes: the
            # classes that the batch has already go behind those that it still takes.
            clash = torch.isin(order, turns[-1][-taken:])
            fresh, missing = order[~clash], per_batch - taken
            later = torch.cat([fresh[missing:], order[clash]])
            later = later[torch.randperm(len(later), generator=generator)]
            order = torch.cat([fresh[:missing], later])
        turns.append(order)
    return torch.cat(turns)[: steps * per_batch]
