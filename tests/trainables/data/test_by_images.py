"""Dealing images: every class in each part, no image in two, by content and seed alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.config.images import SplitConfig
from trainables.data.dataset import Dataset, Official
from trainables.data.images import Images
from trainables.data.splits import Splits, count_split_classes, split_dataset
from trainables.errors import ConfigError


def dataset(labels: list[int], official: Official | None = None) -> Dataset:
    images = Images.from_equal_sizes(torch.zeros(len(labels), 1, 1, dtype=torch.uint8))
    classes = tuple(f"class {c:03d}" for c in range(max(labels) + 1))
    return Dataset(images, torch.tensor(labels), classes, official)


def parts(found: Splits) -> list[str]:
    return ["train", "test"] if found.val is None else ["train", "val", "test"]


def rows(found: Splits, part: str) -> list[int]:
    return sorted(found[part].index.tolist())


SIZES = st.lists(st.integers(3, 12), min_size=2, max_size=8)
CONFIGS = st.builds(
    SplitConfig,
    by=st.just("images"),
    protocol=st.sampled_from(["held_out", "paper"]),
    test=st.floats(0.05, 0.95),
    validation=st.floats(0.05, 0.95),
    seed=st.integers(0, 5),
)


@settings(deadline=None)
@given(SIZES, CONFIGS, st.randoms(use_true_random=False))
def test_stratified_covering_disjoint(sizes: list[int], config: SplitConfig, r) -> None:
    labels = [c for c, n in enumerate(sizes) for _ in range(n)]
    r.shuffle(labels)
    found = split_dataset(dataset(labels), config, "f")
    assert sorted(row for part in parts(found) for row in rows(found, part)) == [
        *range(len(labels))
    ]
    paper = config.protocol == "paper"
    assert (found.val is None) == paper and found.selection == ("test" if paper else "val")
    for part in parts(found):
        subset = found[part]
        assert subset.classes == found.train.classes and len(subset.classes) == len(sizes)
        assert subset.labels.tolist() == [labels[row] for row in subset.index.tolist()]
    for c, n in enumerate(sizes):
        tested = int((found.test.labels == c).sum())
        assert tested == min(max(1, round(config.test * n)), n - (1 if paper else 2))
        if found.val is not None:
            held = int((found.val.labels == c).sum())
            assert held == min(max(1, round(config.validation * (n - tested))), n - tested - 1)
    assert count_split_classes(len(sizes), config) == (
        len(sizes),
        0 if paper else len(sizes),
        len(sizes),
    )
    found.require_splits(parts(found))


def official(*, val: bool, shared: bool = True) -> Official:
    own = [torch.arange(start, 24, 4) for start in range(4)]
    train = torch.cat([own[0], own[1]])
    return Official(train, own[2], own[3] if val else None, shared)


@pytest.mark.parametrize("val", [True, False])
@pytest.mark.parametrize("protocol", ["held_out", "paper"])
def test_a_division_of_its_own_wins(val: bool, protocol: str) -> None:
    made = official(val=val)
    config = SplitConfig(by="images", protocol=protocol, validation=0.25)
    found = split_dataset(dataset([0, 0, 0, 0, 1, 1, 1, 1] * 3, made), config, "")
    assert rows(found, "test") == made.test.tolist()
    train = sorted(made.train.tolist())
    if protocol == "paper":
        own = [] if made.val is None else made.val.tolist()
        assert rows(found, "train") == sorted([*train, *own])
    elif made.val is not None:
        assert rows(found, "val") == made.val.tolist() and rows(found, "train") == train
    else:
        assert sorted(rows(found, "train") + rows(found, "val")) == train
        assert torch.bincount(found["val"].labels).tolist() == [
            2,
            2,
        ]  # round(0.25 · 6), half to even


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (dataset([0, 1] * 12, official(val=False, shared=False)), "tests classes that do not"),
        (dataset([0, 0, 0, 1, 1]), "class class 001 has 2 image.s., and 1 class.es. have fewer"),
        (
            dataset(
                [0, 0, 1] + [0] * 21, Official(torch.arange(2), torch.arange(2, 4), None, True)
            ),
            "no image of class class 001 trains",
        ),
    ],
)
def test_what_cannot_be_dealt(data: Dataset, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split_dataset(data, SplitConfig(by="images"), "")
