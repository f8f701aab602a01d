"""Training, validation and test splits, by classes or by images.

By classes, no class is in two of them. A data set's own division is taken, and validation classes
are held out of its training classes. Only where it was made for classification do training and
test show the same classes; validation classes are disjoint from those that train there too.

Classes are taken in the order of their names, so that the order of files or folders cannot
matter. "shuffled" permutes them by the stream "data.split"; "sorted" leaves them. The last
round(test·C) are test classes, the last round(validation·rest) of the others validation classes:
changing the validation share leaves the test classes alone.

With J parts, the test classes in a permutation by the stream "data.parts" are cut into J blocks;
one is tested, and the others train. Validation classes stay those without parts. Of all classes
that can train, `train_classes` are drawn by the stream "data.train_classes".
With k folds, block f of the n training classes, places ⌊f·n/k⌋ to ⌊(f+1)·n/k⌋ − 1, is held out: of
the classes in the order of their names, or of a permutation by the stream "data.folds".

By images, each split shows other images of every class. A data set that was made for classification
has test images, and perhaps validation images; these are taken. Otherwise, of the n images of a
class in a permutation by the stream "data.images", the last round(test · n) are tested, and of the
others the last round(validation · rest) are held out. Either share takes at least one image of each
class, and leaves at least one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from trainables.config.images import DataConfig, SplitConfig
from trainables.data.dataset import QUERY, Dataset, fingerprint, load_dataset
from trainables.data.images import Images
from trainables.streams import create_generator
from trainables.words.errors import ConfigError

FEWEST = 2  # images that an imbalance leaves a class, so that each still has a partner


@dataclass(frozen=True)
class Subset:
    """The images of one split.

    Attributes:
        images: all images of the data set, shared by the splits.
        index: [n] int64, rows of `images`, class after class.
        labels: [n] int64, contiguous 0 … len(classes) − 1.
        classes: their names, sorted.
        queries: the first `queries` images are searched in the others, the gallery; None: each
            image is searched in all others.
        further: [M, 2] int64, pairs of a query's position and a label that is relevant to the query
            besides its own; None if there are none.
    """

    images: Images
    index: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    queries: int | None = None
    further: Tensor | None = None

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Splits:
    """Training, validation and test images. val is None under protocol "paper", which selects on
    test.

    Attributes:
        by_images: whether the splits show the same classes, so that one image of a class is enough.
    """

    train: Subset
    val: Subset | None
    test: Subset
    fingerprint: str
    by_images: bool = False

    def __getitem__(self, name: str) -> Subset:
        """Return the split "train", "val" or "test"; refuse one that does not exist."""
        subset = {"train": self.train, "val": self.val, "test": self.test}.get(name)
        if subset is None:
            raise ConfigError(
                "evaluate",
                f"there is no split {name!r}"
                + (': protocol "paper" trains on all training classes' if name == "val" else ""),
                f"Give one of {', '.join(self.names)}",
            )
        return subset

    def require_splits(self, names: Iterable[str]) -> None:
        """Refuse a split in which no image can find another image of its class.

        Refuse a test split whose results could be 0 or 100 % only, whatever the model: one of a
        single class, or with a single query. Selection on such validation images is warned of.
        """
        for name in names:
            subset = self[name]
            if self.by_images:  # classification compares no images
                continue
            where, has_roles = f"data, split {name}", subset.queries is not None
            queries, gallery = subset.labels.tensor_split([subset.queries or 0])
            if has_roles and not torch.isin(queries, gallery).any():
                raise ConfigError(
                    where,
                    f"none of the {len(queries)} queries has an image of its class among the "
                    f"{len(gallery)} images of the gallery",
                    "Correct the images' roles",
                )
            if not has_roles and len(subset) == len(subset.classes):  # each class has one image
                raise ConfigError(
                    where,
                    f"all {len(subset)} classes have one image each, so retrieval can find nothing",
                    "Add images, or change data.split",
                )
            if name == "test" and len(torch.unique(gallery)) == 1:
                raise ConfigError(
                    where,
                    f"the {len(gallery)} images are of a single class, so every neighbour is "
                    "correct and every model has 100 %",
                    "Add test classes, or change data.split",
                )
            if name == "test" and has_roles and len(queries) == 1:
                raise ConfigError(
                    where,
                    "there is a single query, so Recall@k is 0 or 100 %",
                    "Add queries",
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the splits that exist."""
        return ("train", "test") if self.val is None else ("train", "val", "test")

    @property
    def selection(self) -> Literal["val", "test"]:
        """The split on which the epoch is selected."""
        return "test" if self.val is None else "val"


def load_splits(config: DataConfig, cache: Path) -> Splits:
    """Load the configured data set, and split it."""
    dataset = load_dataset(config, cache)
    return split_dataset(dataset, config.split, dataset.fingerprint or fingerprint(config, cache))


def split_dataset(dataset: Dataset, config: SplitConfig, fingerprint: str) -> Splits:
    """Split a data set by classes or by images, and leave out training images as configured.

    A data set's official division replaces the shares `config.test` and `config.validation`.
    """
    if dataset.official is not None and not len(dataset.official.train):
        raise ConfigError(
            "data.name",
            "the data set has no training images, so no trial can use it",
            "Evaluate models on it by `ablate evaluate`",
        )
    by_images = config.by == "images"
    split = _split_images if by_images else _split_classes
    train, val, test = split(dataset, config)
    if config.imbalance is not None or config.images_per_class is not None:
        ratio, most = config.imbalance or 1, config.images_per_class  # ratio 1: all stay
        kept = thin_classes(train.labels, ratio, config.seed, most)
        train = replace(train, index=train.index[kept], labels=train.labels[kept], queries=None)
    return Splits(train, val, test, fingerprint, by_images)


def _split_classes(dataset: Dataset, config: SplitConfig) -> tuple[Subset, Subset | None, Subset]:
    """Split by classes; return training, validation (None: no such split) and test images."""
    official = dataset.official
    if official is None:  # divide the class names; a split has all images of its classes
        rows = torch.arange(len(dataset.labels))
        train, val, test = _divide_class_names(sorted(dataset.classes), config)
        train_rows = val_rows = test_rows = rows
    else:
        if config.parts is not None:
            raise ConfigError(
                "data.split.parts",
                "the data set states its test classes, which cannot be cut into parts",
                "Leave out data.split.parts",
            )
        train_rows, test_rows = official.train, official.test
        train, test = (_list_class_names(dataset, rows) for rows in (train_rows, test_rows))
        shared = sorted({*train} & {*test})
        if shared and not official.shared:
            raise ValueError(
                f"the official training and test splits share the classes {shared[:3]}. Put each "
                "class into one split."
            )
        ignores_val = config.folds is not None or config.protocol == "paper"
        if official.val is not None and not ignores_val:
            val, val_rows = _list_class_names(dataset, official.val), official.val
        else:  # take validation classes, by fold or share, from all that train
            if official.val is not None:
                train_rows = torch.cat([train_rows, official.val])
            names = _order_names(_list_class_names(dataset, train_rows), config)
            train, val = _split_validation_classes(names, config)
            val_rows = train_rows
        train = _limit_classes(train, config)
    return (
        _build_subset(dataset, train, train_rows),
        _build_subset(dataset, val, val_rows) if val else None,
        _build_subset(dataset, test, test_rows),
    )


def _divide_class_names(
    names: list[str], config: SplitConfig
) -> tuple[list[str], list[str], list[str]]:
    """Return training, validation and test classes of a data set without official division."""
    # keep=2: at least two classes train, so that one of them can be held out for validation
    train, test = _cut_names(_order_names(names, config), config.test, "data.split.test", keep=2)
    train, val = _split_validation_classes(train, config)
    if config.parts is not None and config.part is not None:
        # test only one part of the test classes; the other parts train
        permuted = _permute_names(sorted(test), config.seed, "data.parts")
        others, test = _take_block(permuted, config.parts, config.part, "parts")
        train += others
    return _limit_classes(train, config), val, test


def _limit_classes(names: list[str], config: SplitConfig) -> list[str]:
    """Return the `train_classes` classes that are drawn to train, or all."""
    if config.train_classes is None:
        return names
    if config.train_classes > len(names):
        raise ConfigError(
            "data.split.train_classes",
            f"{config.train_classes} training classes are requested, and {len(names)} can train",
            f"Give at most {len(names)}",
        )
    return _permute_names(sorted(names), config.seed, "data.train_classes")[: config.train_classes]


def _list_class_names(dataset: Dataset, rows: Tensor) -> list[str]:
    return sorted(dataset.classes[label] for label in torch.unique(dataset.labels[rows]).tolist())


def _permute_names(names: list[str], seed: int, stream: str) -> list[str]:
    order = torch.randperm(len(names), generator=create_generator(seed, stream))
    return [names[position] for position in order.tolist()]


def _order_names(names: list[str], config: SplitConfig) -> list[str]:
    return names if config.order == "sorted" else _permute_names(names, config.seed, "data.split")


def _take_block(
    names: list[str], blocks: int, block: int, option: str
) -> tuple[list[str], list[str]]:
    """Cut names into equal blocks; return (names outside block number `block`, names in it)."""
    if len(names) < blocks:
        raise ConfigError(
            f"data.split.{option}",
            f"{len(names)} {'training' if option == 'folds' else 'test'} classes are too few for "
            f"{blocks} {option}",
            f"Give at most {len(names)}",
        )
    start, end = block * len(names) // blocks, (block + 1) * len(names) // blocks
    return names[:start] + names[end:], names[start:end]


def _split_validation_classes(names: list[str], config: SplitConfig) -> tuple[list[str], list[str]]:
    """Return training and validation classes, by fold or share; "paper" validates on none."""
    if config.folds is not None:
        names = sorted(names)
        if config.blocks == "seeded":
            names = _permute_names(names, config.seed, "data.folds")
        return _take_block(names, config.folds, config.fold or 0, "folds")
    if config.protocol == "paper":
        return names, []
    return _cut_names(names, config.validation, "data.split.validation", keep=1)


def _cut_names(names: list[str], share: float, path: str, keep: int) -> tuple[list[str], list[str]]:
    """Return the first names, `keep` or more if possible, and the last max(1, round(share · n))."""
    if len(names) < 2:
        raise ConfigError(
            path,
            f"{len(names)} class(es) cannot be divided: 2 are needed, or 3 with validation",
            "Add classes, or set data.split.protocol: paper",
        )
    last = max(1, min(round(share * len(names)), len(names) - keep))
    return names[:-last], names[-last:]


def _build_subset(dataset: Dataset, names: list[str], rows: Tensor) -> Subset:
    """Return the images of the classes `names` among `rows`, with queries before the gallery."""
    # number the classes of the subset from 0, and all other classes −1
    classes = tuple(sorted(names))
    label_of = {name: label for label, name in enumerate(classes)}
    new_labels = torch.tensor([label_of.get(name, -1) for name in dataset.classes])
    labels = new_labels[dataset.labels]
    # sort the images by class, or by role and class
    index = torch.sort(rows[labels[rows] >= 0]).values
    index = index[torch.argsort(labels[index], stable=True)]
    queries = None
    if dataset.roles is not None and dataset.roles[index].any():
        roles = dataset.roles[index]
        index, queries = index[torch.argsort(roles, stable=True)], int((roles == QUERY).sum())
    further = None
    if dataset.further is not None and queries is not None:
        position = torch.full_like(labels, -1)
        position[index] = torch.arange(len(index))
        pairs = torch.stack([position[dataset.further[:, 0]], new_labels[dataset.further[:, 1]]], 1)
        further = pairs[(pairs >= 0).all(1)]
    return Subset(dataset.images, index, labels[index], classes, queries, further)


def select_for_evaluation(dataset: Dataset) -> Subset:
    """Return the official test images, or all images if there is no official division."""
    official = dataset.official
    rows = torch.arange(len(dataset.labels)) if official is None else official.test
    return _build_subset(dataset, _list_class_names(dataset, rows), rows)


def _split_images(dataset: Dataset, config: SplitConfig) -> tuple[Subset, Subset | None, Subset]:
    """Split by images; return training, validation (None: no such split) and test images."""
    # refuse data sets whose own division is for retrieval
    official = dataset.official
    if (official is not None and not official.shared) or dataset.roles is not None:
        raise ConfigError(
            "data",
            "the data set's test images are "
            f"{'classes that do not train' if dataset.roles is None else 'queries and a gallery'}, "
            "which only `task: retrieval` can use",
            "Take a data set whose test images show the training classes, or one without an "
            "official division",
        )
    # take the official division, or split the images of each class in a random order
    generator = create_generator(config.seed, "data.images")
    order = torch.randperm(len(dataset.labels), generator=generator)
    selects_on_test = config.protocol == "paper"
    val: Tensor | None = None
    if official is None:
        keep = 1 if selects_on_test else 2  # images of a class that are left to train and validate
        train, test = _split_class_rows(dataset, order, config.test, keep)
    else:
        train, test, val = order[torch.isin(order, official.train)], official.test, official.val
    if selects_on_test and val is not None:  # validation images train, too
        train, val = torch.cat([train, val]), None
    elif not selects_on_test and val is None:
        train, val = _split_class_rows(dataset, train, config.validation)
    # refuse classes that are evaluated and do not train
    labels = dataset.labels[test if val is None else torch.cat([test, val])]
    untrained = labels[~torch.isin(labels, dataset.labels[train])]
    if len(untrained):
        raise ConfigError(
            "data",
            f"class {dataset.classes[int(untrained[0])]} has no image in the training split",
            "Add training images, or leave that class out",
        )
    names = _list_class_names(dataset, train)
    return (
        _build_subset(dataset, names, train),
        None if val is None else _build_subset(dataset, names, val),
        _build_subset(dataset, names, test),
    )


def _split_class_rows(
    dataset: Dataset, rows: Tensor, share: float, keep: int = 1
) -> tuple[Tensor, Tensor]:
    """Return first rows of each class, `keep` or more, and the last max(1, round(share · n))."""
    rows = rows[torch.argsort(dataset.labels[rows], stable=True)]
    labels = dataset.labels[rows]
    sizes = torch.bincount(labels, minlength=len(dataset.classes))
    small = torch.nonzero((sizes > 0) & (sizes <= keep)).squeeze(1).tolist()
    if small:
        raise ConfigError(
            "data.split",
            f"a class needs {keep + 1} images to be divided. {len(small)} class(es) have fewer, "
            f"such as {dataset.classes[small[0]]} with {int(sizes[small[0]])}",
            "Add images, or leave those classes out",
        )
    last = torch.minimum((share * sizes.double()).round().long().clamp_min(1), sizes - keep)
    starts = torch.cumsum(sizes, 0) - sizes
    position = torch.arange(len(rows)) - starts[labels]  # of each row in its class
    is_last = position >= (sizes - last)[labels]
    return rows[~is_last], rows[is_last]


def thin_classes(labels: Tensor, ratio: float, seed: int, most: int | None = None) -> Tensor:
    """Return which training images stay if classes are made smaller: bool [N].

    In a random order of the C classes, the class at position k keeps a random choice of
    max(2, round(n_k · ratio^(−k / (C − 1)))) of its n_k images, but at most `most` (None: any
    number). So the first class keeps all and the last one the share 1 / ratio. The decay is that of
    Cui et al., "Class-balanced loss based on effective number of samples", CVPR 2019.
    """
    generator = create_generator(seed, "data.imbalance")
    sizes = torch.bincount(labels).tolist()
    order = torch.randperm(len(sizes), generator=generator).tolist()
    is_kept = torch.zeros(len(labels), dtype=torch.bool)
    for rank, label in enumerate(order):
        share = ratio ** (-rank / max(1, len(sizes) - 1))
        rows = (labels == label).nonzero().squeeze(1)
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        n_kept = max(FEWEST, round(sizes[label] * share))
        is_kept[shuffled[:n_kept][:most]] = True  # [:None] keeps all
    return is_kept
