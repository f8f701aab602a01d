"""Splits are class-disjoint, cover everything, and depend on content and seed alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainables import core_trials
from trainables.config.images import DataConfig, SplitConfig
from trainables.data.dataset import Dataset, Official
from trainables.data.images import Images
from trainables.data.splits import Splits, load_splits, split_dataset, thin_classes
from trainables.errors import ConfigError


def dataset(labels: list[int], classes: int, official: Official | None = None) -> Dataset:
    images = Images.from_equal_sizes(torch.zeros(len(labels), 1, 1, dtype=torch.uint8))
    return Dataset(
        images, torch.tensor(labels), tuple(f"class {c:03d}" for c in range(classes)), official
    )


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


def parts(found: Splits) -> list[str]:
    return ["train", "test"] if found.val is None else ["train", "val", "test"]


@settings(deadline=None)
@given(datasets(), CONFIGS)
def test_disjoint_covering_contiguous(data: Dataset, config: SplitConfig) -> None:
    found = split_dataset(data, config, "f")
    names = [name for part in parts(found) for name in found[part].classes]
    assert sorted(names) == sorted(data.classes)
    rows = torch.cat([found[part].index for part in parts(found)])
    assert sorted(rows.tolist()) == list(range(len(data.labels)))
    for part in parts(found):
        subset = found[part]
        assert subset.labels.tolist() == sorted(subset.labels.tolist())
        assert set(subset.labels.tolist()) == set(range(len(subset.classes)))
        for row, label in zip(subset.index.tolist(), subset.labels.tolist(), strict=True):
            assert data.classes[data.labels[row]] == subset.classes[label]
    assert (found.val is None) == (config.protocol == "paper")
    assert found.selection == ("test" if config.protocol == "paper" else "val")


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
    with pytest.raises(ConfigError, match="1 class cannot be divided"):
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
    labels = [c for c in range(classes) for _ in range(2)]
    rows = torch.arange(2 * classes)
    given_test = Official(train=rows[: 2 * (classes - 1)], test=rows[2 * (classes - 1) :])
    data = dataset(labels, classes, given_test if official else None)

    def fold(number: int | None) -> Splits:
        config = {"seed": seed, "test": 0.3}
        if number is not None:
            config |= {"folds": folds, "fold": number, "blocks": blocks}
        return split_dataset(data, SplitConfig.model_validate(config), "f")

    whole = fold(None)
    assert whole.val is not None
    training = sorted([*whole.train.classes, *whole.val.classes])
    if len(training) < folds:
        with pytest.raises(ConfigError, match="folds of"):
            fold(0)
        return
    held = []
    for number in range(folds):
        found = fold(number)
        assert found.val is not None and found.test.classes == whole.test.classes
        assert not {*found.train.classes} & {*found.val.classes}
        assert sorted([*found.train.classes, *found.val.classes]) == training
        held.append(found.val.classes)
    assert sorted(name for part in held for name in part) == training, "each class once"
    assert max(map(len, held)) - min(map(len, held)) <= 1
    if blocks == "contiguous":
        assert [name for part in held for name in part] == training, "in the order of the names"


@pytest.mark.parametrize(("ratio", "each"), [(10.0, 100), (3.0, 7), (500.0, 40)])
def test_sizes_fall_exponentially(ratio: float, each: int) -> None:
    labels = torch.arange(9).repeat_interleave(each)
    stays = thin_classes(labels, ratio, 0)
    sizes = sorted((int((labels[stays] == at).sum()) for at in range(9)), reverse=True)
    expected = []
    for place in range(9):
        size = each * ratio ** (-place / 8)
        expected.append(max(2, round(size)))
    assert sizes == expected
    assert sizes[0] == each


def test_only_what_trains_is_thinned(drawn: Path, tmp_path: Path) -> None:
    whole = core_trials.config(drawn).data
    thin = DataConfig.model_validate(
        {**whole.model_dump(), "split": {**whole.split.model_dump(), "imbalance": 3}}
    )
    before, after = load_splits(whole, tmp_path), load_splits(thin, tmp_path)
    assert before.fingerprint == after.fingerprint and before.val and after.val
    for name in ("val", "test"):
        assert torch.equal(before[name].index, after[name].index)
    assert after.train.classes == before.train.classes
    assert len(after.train) < len(before.train)
    assert set(after.train.index.tolist()) < set(before.train.index.tolist())
    sizes = torch.bincount(after.train.labels)
    assert (int(sizes.max()), int(sizes.min())) == (6, 2)


@settings(deadline=None)
@given(st.integers(6, 30), st.integers(2, 4), CONFIGS)
def test_parts_are_disjoint_and_each_trains_on_the_others(
    classes: int, count: int, config: SplitConfig
) -> None:
    data = dataset([*range(classes)] * 2, classes)
    config = config.model_copy(update={"protocol": "held_out", "test": 0.7, "validation": 0.4})
    plain = split_dataset(data, config, "f")
    made = [
        split_dataset(data, config.model_copy(update={"parts": count, "part": part}), "f")
        for part in range(count)
    ]
    tested = [name for found in made for name in found.test.classes]
    assert sorted(tested) == sorted(plain.test.classes), "each once"
    for found in made:
        assert found.val is not None and plain.val is not None
        assert found.val.classes == plain.val.classes, "a search without parts chose by these"
        others = {*plain.test.classes} - {*found.test.classes}
        assert {*found.train.classes} == {*plain.train.classes} | others
    sizes = [len(found.test.classes) for found in made]
    assert max(sizes) - min(sizes) <= 1


def test_parts_need_classes_to_deal() -> None:
    data = dataset([*range(6)] * 2, 6)
    with pytest.raises(ConfigError, match="leave one empty"):
        split_dataset(data, SplitConfig(parts=9, part=0), "f")
    rows = torch.arange(12)
    official = dataset([*range(6)] * 2, 6, Official(rows[:6], rows[6:], shared=True))
    with pytest.raises(ConfigError, match="test classes of its own"):
        split_dataset(official, SplitConfig(parts=2, part=0), "f")
    with pytest.raises(ValueError, match="part must be"):
        SplitConfig(parts=2, part=2)
