"""Training, validation and test splits, by classes or by images.

By classes, no class is in two of them. Where a data set has a division of its own, that is taken,
and validation classes are held out of its training classes. Only where it was made for
classification do training and test show the same classes; validation classes are disjoint from
those that train there too.

Classes are taken in the order of their names, so that the order of files or folders cannot
matter. "shuffled" permutes them by `streams.derive(seed, "data.split")`; "sorted" leaves them.
The last round(test·C) are test classes, the last round(validation·rest) of the others
validation classes: changing the validation share leaves the test classes alone.

With k folds, block f of the n training classes, places ⌊f·n/k⌋ to ⌊(f+1)·n/k⌋ − 1, is held out: of
the classes in the order of their names, or of a permutation by `streams.derive(seed,
"data.folds")`. The blocks are disjoint, cover all training classes, and differ by at most one.

By images, each part shows other images of every class: `by_images.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainables import streams
from trainables.data.by_images import Rows, deal, kept
from trainables.data.dataset import QUERY, Dataset, Official, fingerprint, load_dataset
from trainables.data.images import Images
from trainables.errors import ConfigError

if TYPE_CHECKING:
    from trainables.config.images import DataConfig, SplitConfig

SplitName = Literal["train", "val", "test"]


@dataclass(frozen=True)
class Subset:
    """Images of one split.

    images: all images of the data set; shared by the splits.
    index: [n] int64, rows of `images`, class after class.
    labels: [n] int64, contiguous 0 … len(classes) − 1.
    classes: their names, sorted.
    queries: so many at the beginning are looked for among the others, the gallery; None: each is
        looked for among all others.
    """

    images: Images
    index: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    queries: int | None = None

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Splits:
    """val is None under protocol "paper", which selects on test.

    by_images: whether they show the same classes; one image of a class is then enough.
    """

    train: Subset
    val: Subset | None
    test: Subset
    fingerprint: str
    by_images: bool = False

    def __getitem__(self, name: str) -> Subset:
        part = {"train": self.train, "val": self.val, "test": self.test}.get(name)
        if part is None:
            known = "train, test" if self.val is None else "train, val, test"
            raise ConfigError(
                "evaluate",
                repr(name),
                f"one of {known}",
                'Protocol "paper" trains on all training classes: there is no validation split'
                if name == "val"
                else "",
            )
        return part

    def require(self, names: Iterable[str]) -> None:
        """Raise now what evaluating these splits would raise after hours of training.

        Raises:
            ConfigError: no such split, or one without two images of any class.
        """
        for name in names:
            subset = self[name]
            if self.by_images:
                continue
            if subset.queries is not None:
                queried, kept = subset.labels[: subset.queries], subset.labels[subset.queries :]
                if not torch.isin(queried, kept).any():
                    raise ConfigError(
                        f"data, split {name}",
                        f"{len(queried)} queries and {len(kept)} images in the gallery",
                        "at least one query with an image of its class in the gallery",
                        "Look at the roles of its images",
                    )
            elif len(subset) == len(subset.classes):
                raise ConfigError(
                    f"data, split {name}",
                    f"{len(subset)} classes of one image each",
                    "at least one class with two images, for retrieval has nothing to find",
                    "Add images, or change data.split",
                )

    @property
    def selection(self) -> SplitName:
        """The split on which the epoch is chosen."""
        return "test" if self.val is None else "val"


def load_splits(config: DataConfig, cache: Path) -> Splits:
    """Load the configured data set and deal its classes.

    Raises:
        ConfigError: unreadable data, or too few classes for the splits.
    """
    dataset = load_dataset(config, cache)
    return split(dataset, config.split, dataset.fingerprint or fingerprint(config, cache))


def split(dataset: Dataset, config: SplitConfig, fingerprint: str) -> Splits:
    """Deal the classes of `dataset`; its official test classes win over `config.test`, and its
    validation images over `config.validation`."""
    made = _whole(dataset, config, fingerprint)
    if config.imbalance is None:
        return made
    stays = kept(made.train.labels, config.imbalance, config.seed)
    train = replace(
        made.train, index=made.train.index[stays], labels=made.train.labels[stays], queries=None
    )
    return replace(made, train=train)


def _whole(dataset: Dataset, config: SplitConfig, fingerprint: str) -> Splits:
    if config.by == "images":
        return _by_images(dataset, deal(dataset, config), fingerprint)
    official = dataset.official
    if official is None:
        rest, test = _tested(sorted(dataset.classes), config)
        train, val = _train_and_val(rest, config)
        return Splits(
            train=_subset(dataset, train),
            val=_subset(dataset, val) if val else None,
            test=_subset(dataset, test),
            fingerprint=fingerprint,
        )
    _check(dataset, official)
    training, held = official.train, official.val
    if held is not None and (config.folds is not None or config.protocol == "paper"):
        training, held = torch.cat([training, held]), None
    train = _dealt(_names(dataset, training), config)
    val = _names(dataset, held) if held is not None else []
    if held is None:
        train, val = _train_and_val(train, config)
        held = training
    return Splits(
        train=_subset(dataset, train, training),
        val=_subset(dataset, val, held) if val else None,
        test=_subset(dataset, _names(dataset, official.test), official.test),
        fingerprint=fingerprint,
    )


def _by_images(dataset: Dataset, rows: Rows, fingerprint: str) -> Splits:
    names = _names(dataset, rows.train)
    return Splits(
        train=_subset(dataset, names, rows.train),
        val=None if rows.val is None else _subset(dataset, names, rows.val),
        test=_subset(dataset, names, rows.test),
        fingerprint=fingerprint,
        by_images=True,
    )


def _check(dataset: Dataset, official: Official) -> None:
    """That only a data set that says so shows the same classes in training and test."""
    train, test = (set(_names(dataset, rows)) for rows in (official.train, official.test))
    if train & test and not official.shared:
        raise ValueError(f"official splits share classes: {sorted(train & test)[:3]}")


def _names(dataset: Dataset, rows: Tensor) -> list[str]:
    """The classes of these rows, sorted."""
    return sorted(dataset.classes[label] for label in torch.unique(dataset.labels[rows]).tolist())


def class_counts(classes: int, config: SplitConfig) -> tuple[int, int, int]:
    """Of so many classes those for training, validation (0: none) and test, where the division
    is not the data set's own; nothing is loaded.

    Raises:
        ConfigError: too few classes for the splits.
    """
    if config.by == "images":
        return classes, 0 if config.protocol == "paper" else classes, classes
    rest, test = _tested([str(number) for number in range(classes)], config)
    train, val = _train_and_val(rest, config)
    return len(train), len(val), len(test)


def _train_and_val(names: list[str], config: SplitConfig) -> tuple[list[str], list[str]]:
    if config.folds is not None:
        return _fold(names, config)
    if config.protocol == "paper":
        return names, []
    held = _share(config.validation, len(names), "data.split.validation")
    return names[:-held], names[-held:]


def _tested(names: list[str], config: SplitConfig) -> tuple[list[str], list[str]]:
    names = _dealt(names, config)
    tested = _share(config.test, len(names), "data.split.test", keep=2)
    return names[:-tested], names[-tested:]


def _fold(names: list[str], config: SplitConfig) -> tuple[list[str], list[str]]:
    """Training and validation classes of one fold."""
    folds, fold = config.folds, config.fold
    assert folds is not None and fold is not None
    if len(names) < folds:
        raise ConfigError(
            "data.split.folds",
            f"{folds} folds of {len(names)} training classes",
            "at least one class in each",
            "Take fewer folds",
        )
    ordered = sorted(names)
    if config.blocks == "seeded":
        order = torch.randperm(len(names), generator=streams.generator(config.seed, "data.folds"))
        ordered = [ordered[place] for place in order.tolist()]
    start, end = fold * len(names) // folds, (fold + 1) * len(names) // folds
    return ordered[:start] + ordered[end:], ordered[start:end]


def _dealt(names: list[str], config: SplitConfig) -> list[str]:
    if config.order == "sorted":
        return names
    order = torch.randperm(len(names), generator=streams.generator(config.seed, "data.split"))
    return [names[place] for place in order.tolist()]


def _share(share: float, classes: int, path: str, keep: int = 1) -> int:
    """round(share · classes), at least 1, and at most what leaves `keep` where there are enough.

    Two classes are kept from the test share, so that one can still be held out of them.
    """
    if classes < 2:
        raise ConfigError(
            path,
            f"{classes} class to divide",
            "at least 2 (3 in all, with a validation split)",
            "Add class folders, or use data.split.protocol: paper",
        )
    return max(1, min(round(share * classes), classes - keep))


def _subset(dataset: Dataset, names: list[str], rows: Tensor | None = None) -> Subset:
    """The images of these classes, of all rows or of these, queries before the gallery."""
    classes = tuple(sorted(names))
    number = {name: place for place, name in enumerate(classes)}
    lookup = torch.tensor([number.get(name, -1) for name in dataset.classes])
    labels = lookup[dataset.labels]
    if rows is not None:
        elsewhere = torch.ones(len(labels), dtype=torch.bool)
        elsewhere[rows] = False
        labels = labels.masked_fill(elsewhere, -1)
    index = torch.nonzero(labels >= 0).squeeze(1)
    index = index[torch.argsort(labels[index], stable=True)]
    roles = None if dataset.roles is None else dataset.roles[index]
    if roles is None or not roles.any():
        return Subset(dataset.images, index, labels[index], classes)
    index = index[torch.argsort(roles, stable=True)]
    return Subset(dataset.images, index, labels[index], classes, int((roles == QUERY).sum()))
