"""Which images train, select and are tested where every class is in each part; and which of those
that train are left, where classes are to be of very different sizes (`kept`).

A data set that was made for classification has test images, and perhaps validation images; these
are taken. Otherwise, of the n images of a class in a permutation by `streams.derive(seed,
"data.images")`, the last round(test · n) are tested, and of the others the last
round(validation · rest) are held out for validation. Either share takes at least one image of each
class, and leaves at least one. Changing the validation share leaves the test images alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from trainables import streams
from trainables.data.dataset import Dataset
from trainables.errors import ConfigError

if TYPE_CHECKING:
    from trainables.config.images import SplitConfig

FEWEST = 2  # images that an imbalance leaves a class, so that each still has a partner


class Rows(NamedTuple):
    """Row numbers of a data set. val: None under protocol "paper", which selects on test."""

    train: Tensor
    val: Tensor | None
    test: Tensor


def deal(dataset: Dataset, config: SplitConfig) -> Rows:
    """Deal the images of `dataset`; its own test images win over `config.test`, and its validation
    images over `config.validation`.

    Raises:
        ConfigError: a class with too few images; a division of the data set's own in which other
            classes are tested than train, or queries are looked for in a gallery.
    """
    official = dataset.official
    if (official is not None and not official.shared) or dataset.roles is not None:
        raise ConfigError(
            "data",
            "a data set whose own division tests "
            + ("classes that do not train" if dataset.roles is None else "queries in a gallery"),
            "one whose test shows other images of the classes that train, or one with no division",
            "It is of task: retrieval; for classification take another",
        )
    order = torch.randperm(
        len(dataset.labels), generator=streams.generator(config.seed, "data.images")
    )
    held: Tensor | None = None
    if official is None:
        keep = 1 if config.protocol == "paper" else 2
        rest, test = _cut(dataset, order, config.test, keep=keep)
    else:
        rest, test, held = order[torch.isin(order, official.train)], official.test, official.val
    if config.protocol == "paper":
        rest, held = rest if held is None else torch.cat([rest, held]), None
    elif held is None:
        rest, held = _cut(dataset, rest, config.validation)
    for part in (test, held):
        if part is not None:
            _known(dataset, rest, part)
    return Rows(rest, held, test)


def _cut(dataset: Dataset, rows: Tensor, share: float, keep: int = 1) -> tuple[Tensor, Tensor]:
    """The first and the last of each class's rows, in their order: of n the last round(share · n),
    at least 1, and at most what leaves `keep`."""
    rows = rows[torch.argsort(dataset.labels[rows], stable=True)]
    labels = dataset.labels[rows]
    sizes = torch.bincount(labels, minlength=len(dataset.classes))
    few = torch.nonzero((sizes > 0) & (sizes <= keep)).squeeze(1)
    if len(few):
        name = dataset.classes[int(few[0])]
        raise ConfigError(
            "data.split",
            f"{int(sizes[few[0]])} image(s) of class {name} to divide ({len(few)} classes so)",
            f"at least {keep + 1} of each class",
            "Add images, or leave those classes out",
        )
    last = torch.minimum((share * sizes.double()).round().long().clamp_min(1), sizes - keep)
    place = torch.arange(len(rows)) - (torch.cumsum(sizes, 0) - sizes)[labels]
    held = place >= (sizes - last)[labels]
    return rows[~held], rows[held]


def _known(dataset: Dataset, train: Tensor, part: Tensor) -> None:
    """That every image is of a class that trains."""
    strange = ~torch.isin(dataset.labels[part], dataset.labels[train])
    if bool(strange.any()):
        name = dataset.classes[int(dataset.labels[part[strange]][0])]
        raise ConfigError(
            "data",
            f"images of class {name} to be told, none of which trains",
            "classes that train",
            "Add training images, or leave that class out",
        )


def kept(labels: Tensor, ratio: float, seed: int) -> Tensor:
    """Which images of a split stay, bool [N]: of the class at place k of C, in an order that is
    drawn, max(2, round(n_k · ratio^(−k / (C − 1)))) images, which are drawn; the first one keeps
    all of its n, the last one a share of 1 / ratio. Exponential decay: Cui et al., "Class-balanced
    loss based on effective number of samples", CVPR 2019.

    Args:
        labels: [N], of classes 0 … C − 1.
        seed: of the split; neither a trial's nor that by which classes are dealt.
    """
    generator = streams.generator(seed, "data.imbalance")
    sizes = torch.bincount(labels).tolist()
    order = torch.randperm(len(sizes), generator=generator).tolist()
    stays = torch.zeros(len(labels), dtype=torch.bool)
    for place, label in enumerate(order):
        share = ratio ** (-place / max(1, len(sizes) - 1))
        rows = (labels == label).nonzero().squeeze(1)
        drawn = torch.randperm(len(rows), generator=generator)
        stays[rows[drawn[: max(FEWEST, round(sizes[label] * share))]]] = True
    return stays
