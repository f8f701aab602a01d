"""Splits are disjoint, cover everything, and depend on content and seed alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.config.images import SplitConfig
from trainables.data.dataset import Dataset, Official
from trainables.data.images import Images
from trainables.data.splits import (
    Splits,
    split_dataset,
    thin_classes,
)
from trainables.words.errors import ConfigError


def dataset(labels: list[int], classes: int, official: Official | None = None) -> Dataset:
    images = Images.from_equal_sizes(torch.zeros(len(labels), 1, 1, dtype=torch.uint8))
    names = tuple(f"class {c:03d}" for c in range(classes))
    return Dataset(images, torch.tensor(labels), names, official)


CONFIGS = st.builds(
    SplitConfig,
    protocol=st.sampled_from(["held_out", "paper"]),
    order=st.sampled_from(["shuffled", "sorted"]),
    test=st.floats(0.05, 0.95),
    validation=st.floats(0.05, 0.95),
    seed=st.integers(0, 5),
)


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    classes = draw(st.integers(3, 20))
    extra = draw(st.lists(st.integers(0, classes - 1), max_size=40))
    labels = draw(st.permutations([*range(classes), *extra]))
    return dataset(labels, classes)


def parts(splits: Splits) -> list[str]:
    return ["train", "test"] if splits.val is None else ["train", "val", "test"]


@settings(deadline=None)
@given(datasets(), CONFIGS)
def test_disjoint_covering_contiguous(data: Dataset, config: SplitConfig) -> None:
    splits = split_dataset(data, config, "f")
    names = [name for part in parts(splits) for name in splits[part].classes]
    assert sorted(names) == sorted(data.classes)
    rows = torch.cat([splits[part].index for part in parts(splits)])
    assert sorted(rows.tolist()) == list(range(len(data.labels)))
    for part in parts(splits):
        subset = splits[part]
        assert subset.labels.tolist() == sorted(subset.labels.tolist())
        assert set(subset.labels.tolist()) == set(range(len(subset.classes)))
        for row, label in zip(subset.index.tolist(), subset.labels.tolist(), strict=True):
            assert data.classes[data.labels[row]] == subset.classes[label]
    assert (splits.val is None) == (config.protocol == "paper")
    assert splits.selection == ("test" if config.protocol == "paper" else "val")


@settings(deadline=None)
@given(datasets(), CONFIGS, st.randoms(use_true_random=False))
def test_order_of_files_and_classes_does_not_matter(data: Dataset, config: SplitConfig, r) -> None:
    rows = list(range(len(data.labels)))
    r.shuffle(rows)
    renumber = list(range(len(data.classes)))
    r.shuffle(renumber)
    names = [""] * len(renumber)
    for old, new in enumerate(renumber):
        names[new] = data.classes[old]
    other = Dataset(
        data.images, torch.tensor(renumber)[data.labels[rows]], tuple(names), data.official
    )
    a, b = split_dataset(data, config, "f"), split_dataset(other, config, "f")
    for part in parts(a):
        assert a[part].classes == b[part].classes
        assert {rows[row] for row in b[part].index.tolist()} == set(a[part].index.tolist())


def test_validation_share_and_protocol_leave_the_test_classes_alone() -> None:
    data = dataset(list(range(40)), 40)
    plain = split_dataset(data, SplitConfig(), "f")
    for other in (SplitConfig(validation=0.1), SplitConfig(protocol="paper")):
        assert split_dataset(data, other, "f").test.classes == plain.test.classes
    assert split_dataset(data, SplitConfig(seed=1), "f").test.classes != plain.test.classes


def test_too_few_classes() -> None:
    with pytest.raises(ConfigError, match=r"1 class\(es\) cannot be divided: 2 are needed"):
        split_dataset(dataset([0, 1, 0], 2), SplitConfig(), "f")
    assert split_dataset(dataset([0, 1, 0], 2), SplitConfig(protocol="paper"), "f").val is None


@settings(deadline=None)
@given(
    st.integers(4, 30),
    st.integers(2, 8),
    st.sampled_from(["contiguous", "seeded"]),
    st.integers(0, 3),
    st.booleans(),
)
def test_folds_are_disjoint_blocks_of_the_training_classes(
    classes: int, folds: int, blocks: str, seed: int, official: bool
) -> None:
    rows = torch.arange(2 * classes)
    division = Official(train=rows[:-2], test=rows[-2:]) if official else None
    data = dataset([c for c in range(classes) for _ in range(2)], classes, division)

    def fold(number: int | None) -> Splits:
        config = {"seed": seed, "test": 0.3}
        if number is not None:
            config |= {"folds": folds, "fold": number, "blocks": blocks}
        return split_dataset(data, SplitConfig.model_validate(config), "f")

    plain = fold(None)
    assert plain.val is not None
    training = sorted([*plain.train.classes, *plain.val.classes])
    if len(training) < folds:
        with pytest.raises(ConfigError, match="training classes are too few for"):
            fold(0)
        return
    held = []
    for number in range(folds):
        splits = fold(number)
        assert splits.val is not None and splits.test.classes == plain.test.classes
        assert sorted([*splits.train.classes, *splits.val.classes]) == training
        held.append(splits.val.classes)
    in_turn = [name for part in held for name in part]
    assert sorted(in_turn) == training, "each class once"
    assert max(map(len, held)) - min(map(len, held)) <= 1
    assert blocks == "seeded" or in_turn == training, "in the order of the names"


@pytest.mark.parametrize(("ratio", "size"), [(10.0, 100), (3.0, 7), (500.0, 40)])
def test_sizes_fall_exponentially(ratio: float, size: int) -> None:
    labels = torch.arange(9).repeat_interleave(size)
    stays = thin_classes(labels, ratio, 0)
    sizes = sorted(torch.bincount(labels[stays]).tolist(), reverse=True)
    assert sizes == [max(2, round(size * ratio ** (-rank / 8))) for rank in range(9)]


def test_only_what_trains_is_thinned() -> None:
    data = dataset(list(range(12)) * 6, 12)
    before, after = (
        split_dataset(data, SplitConfig(imbalance=imbalance), "f") for imbalance in (None, 3)
    )
    for name in ("val", "test"):
        assert torch.equal(before[name].index, after[name].index)
    assert after.train.classes == before.train.classes
    assert set(after.train.index.tolist()) < set(before.train.index.tolist())
    sizes = torch.bincount(after.train.labels)
    assert (int(sizes.max()), int(sizes.min())) == (6, 2)
    few = split_dataset(data, SplitConfig(images_per_class=4), "f").train
    assert torch.bincount(few.labels).tolist() == [4] * len(few.classes)
    assert set(few.index.tolist()) < set(before.train.index.tolist())


@settings(deadline=None)
@given(st.integers(6, 30), st.integers(2, 4), CONFIGS)
def test_parts_are_disjoint_and_each_trains_on_the_others(
    classes: int, count: int, config: SplitConfig
) -> None:
    data = dataset([*range(classes)] * 2, classes)
    config = config.model_copy(update={"protocol": "held_out", "test": 0.7, "validation": 0.4})
    plain = split_dataset(data, config, "f")
    all_splits = [
        split_dataset(data, config.model_copy(update={"parts": count, "part": part}), "f")
        for part in range(count)
    ]
    tested = [name for splits in all_splits for name in splits.test.classes]
    assert sorted(tested) == sorted(plain.test.classes), "each once"
    for splits in all_splits:
        assert splits.val is not None and plain.val is not None
        assert splits.val.classes == plain.val.classes, "a search without parts chose by these"
        others = {*plain.test.classes} - {*splits.test.classes}
        assert {*splits.train.classes} == {*plain.train.classes} | others
    sizes = [len(splits.test.classes) for splits in all_splits]
    assert max(sizes) - min(sizes) <= 1


def test_parts_need_classes_to_deal() -> None:
    data = dataset([*range(6)] * 2, 6)
    with pytest.raises(ConfigError, match="test classes are too few for 9 parts"):
        split_dataset(data, SplitConfig(parts=9, part=0), "f")
    rows = torch.arange(12)
    official = dataset([*range(6)] * 2, 6, Official(rows[:6], rows[6:], shared=True))
    with pytest.raises(ConfigError, match="cannot be cut into parts"):
        split_dataset(official, SplitConfig(parts=2, part=0), "f")


def test_as_many_classes_train_in_each_part_as_in_a_search() -> None:
    data = dataset([*range(20)] * 3, 20)
    config = SplitConfig(train_classes=4)
    search, whole = split_dataset(data, config, "f"), split_dataset(data, SplitConfig(), "f")
    assert search.val is not None and whole.val is not None
    assert (search.val.classes, search.test.classes) == (whole.val.classes, whole.test.classes)
    assert len(search.train.classes) == 4 and {*search.train.classes} < {*whole.train.classes}
    trained = set()
    for part in range(2):
        splits = split_dataset(data, config.model_copy(update={"parts": 2, "part": part}), "f")
        assert len(splits.train.classes) == 4 and len(splits.train) == 12
        assert not {*splits.train.classes} & {*splits.test.classes, *search.val.classes}
        trained |= {*splits.train.classes}
    assert trained & {*search.test.classes}, "classes that another part tests train, too"
    with pytest.raises(ConfigError, match="8 training classes are requested, and 7 can train"):
        split_dataset(data, SplitConfig(train_classes=8), "f")
    rows = torch.arange(60)
    official = dataset([*range(20)] * 3, 20, Official(rows[rows % 20 < 10], rows[rows % 20 >= 10]))
    assert len(split_dataset(official, config, "f").train.classes) == 4
    with pytest.raises(ValueError, match="images of all classes"):
        SplitConfig(by="images", train_classes=4)


# --- by images ------------------------------------------------------------------------------------

BY_IMAGES = st.builds(
    SplitConfig,
    by=st.just("images"),
    protocol=st.sampled_from(["held_out", "paper"]),
    test=st.floats(0.05, 0.95),
    validation=st.floats(0.05, 0.95),
    seed=st.integers(0, 5),
)
SIZES = st.lists(st.integers(3, 12), min_size=2, max_size=8)


def rows_of(splits: Splits, part: str) -> list[int]:
    return sorted(splits[part].index.tolist())


@settings(deadline=None)
@given(SIZES, BY_IMAGES, st.randoms(use_true_random=False))
def test_images_are_dealt_class_by_class(sizes: list[int], config: SplitConfig, r) -> None:
    labels = [c for c, n in enumerate(sizes) for _ in range(n)]
    r.shuffle(labels)
    splits = split_dataset(dataset(labels, len(sizes)), config, "f")
    dealt = sorted(row for part in parts(splits) for row in rows_of(splits, part))
    assert dealt == list(range(len(labels)))
    paper = config.protocol == "paper"
    assert (splits.val is None) == paper and splits.selection == ("test" if paper else "val")
    for part in parts(splits):
        subset = splits[part]
        assert subset.classes == splits.train.classes and len(subset.classes) == len(sizes)
        assert subset.labels.tolist() == [labels[row] for row in subset.index.tolist()]
    for c, n in enumerate(sizes):
        tested = int((splits.test.labels == c).sum())
        assert tested == min(max(1, round(config.test * n)), n - (1 if paper else 2))
        if splits.val is not None:
            held = int((splits.val.labels == c).sum())
            assert held == min(max(1, round(config.validation * (n - tested))), n - tested - 1)
    splits.require_splits(parts(splits))


@pytest.mark.parametrize("val", [True, False])
@pytest.mark.parametrize("protocol", ["held_out", "paper"])
def test_an_official_division_of_images_wins(val: bool, protocol: str) -> None:
    first, second, test, validation = (torch.arange(start, 24, 4) for start in range(4))
    official = Official(torch.cat([first, second]), test, validation if val else None, shared=True)
    config = SplitConfig(by="images", protocol=protocol, validation=0.25)
    splits = split_dataset(dataset([0, 0, 0, 0, 1, 1, 1, 1] * 3, 2, official), config, "")
    assert rows_of(splits, "test") == test.tolist()
    train = sorted(official.train.tolist())
    if protocol == "paper":
        assert rows_of(splits, "train") == sorted([*train, *(validation.tolist() if val else [])])
    elif val:
        assert rows_of(splits, "val") == validation.tolist() and rows_of(splits, "train") == train
    else:
        assert sorted(rows_of(splits, "train") + rows_of(splits, "val")) == train
        held = torch.bincount(splits["val"].labels).tolist()
        assert held == [2, 2]  # round(0.25 · 6), half to even


DISJOINT = Official(torch.arange(0, 24, 2), torch.arange(1, 24, 2))
UNTRAINED = Official(torch.arange(2), torch.arange(2, 4), shared=True)


@pytest.mark.parametrize(
    ("labels", "official", "message"),
    [
        ([0, 1] * 12, DISJOINT, "test images are classes that do not"),
        ([0, 0, 0, 1, 1], None, "1 class.es. have fewer, such as class 001 with 2"),
        ([0, 0, 1] + [0] * 21, UNTRAINED, "class class 001 has no image in the training split"),
    ],
)
def test_images_that_cannot_be_dealt(
    labels: list[int], official: Official | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        split_dataset(dataset(labels, 2, official), SplitConfig(by="images"), "")
