"""Every official layout is read as it is unpacked: classes, parts, roles and pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.trainables.data import trees
from trainables.config.images import DataConfig, SplitConfig
from trainables.data.dataset import (
    GALLERY,
    QUERY,
    Dataset,
    fingerprint,
    load_dataset,
    resolve_data_config,
)
from trainables.data.splits import select_for_evaluation, split_dataset
from trainables.words.errors import ConfigError


def config(name: str, root: Path, **options: object) -> DataConfig:
    data = {"name": name, "root": str(root), "image_size": 16, "allow_partial": True}
    return resolve_data_config({**data, **options})


def loaded(name: str, usual: str, folder: Path, **options: object) -> Dataset:
    root = trees.TREES[name][usual](folder / usual)
    return load_dataset(config(name, root, **options), folder / "cache")


@pytest.mark.parametrize(("name", "usual"), trees.CASES)
def test_a_layout_is_read(name: str, usual: str, tmp_path: Path) -> None:
    data = loaded(name, usual, tmp_path)
    assert data.official is not None
    assert list(data.classes) == sorted(set(data.classes))
    assert data.labels.unique().tolist() == list(range(len(data.classes)))
    train, test = data.official.train, data.official.test
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(data.labels)))
    shared = set(data.labels[train].tolist()) & set(data.labels[test].tolist())
    assert bool(shared) == data.official.shared == name.startswith(("cifar", "imagenet"))
    for row in range(0, len(data.labels), 7):
        assert data.images[row].float().std() > 1
    if name == "imagenet":  # whose validation has a list of its own, or class folders
        assert data.classes == trees.WNIDS
        truth = [n % 6 for n in range(12)]
        assert data.labels[test].tolist() == (truth if usual == "imagenet" else sorted(truth))


def test_cub_boxes_crop_and_are_another_data_set(tmp_path: Path) -> None:
    root = trees.cub200(tmp_path / "cub")
    plain, boxed = config("cub200", root), config("cub200", root, boxes=True)
    cache = tmp_path / "cache"
    assert fingerprint(plain, cache) != fingerprint(boxed, cache)
    assert fingerprint(config("cub200", root, boxes=False), cache) == fingerprint(plain, cache)
    uncut, cut = load_dataset(plain, cache).images, load_dataset(boxed, cache).images
    assert (int(uncut.widths[5]), int(uncut.heights[5])) == (21, 18)  # of 28 × 24
    assert (int(cut.widths[5]), int(cut.heights[5])) == (22, 18)  # of 20 × 16
    assert uncut[5].shape != cut[5].shape


@pytest.mark.parametrize("usual", trees.TREES["inshop"])
def test_inshop_has_queries_and_a_gallery(usual: str, tmp_path: Path) -> None:
    data = loaded("inshop", usual, tmp_path)
    assert data.official is not None and data.roles is not None
    assert (data.roles[data.official.train] == 0).all()
    assert (data.roles == QUERY).sum() == 12 and (data.roles == GALLERY).sum() == 13
    parts = split_dataset(data, SplitConfig(protocol="paper"), "")
    assert parts.train.queries is None and parts.test.queries == 12
    assert (data.roles[parts.test.index[:12]] == QUERY).all()
    assert (data.roles[parts.test.index[12:]] == GALLERY).all()
    held = split_dataset(data, SplitConfig(), "")
    assert held.val is not None and held.val.queries is None
    held.require_splits(("val", "test"))


def test_cifar_s_images_and_classes(tmp_path: Path) -> None:
    data = loaded("cifar10", "cifar-10-batches-py", tmp_path)
    assert np.array_equal(data.images[13].numpy(), trees.pixels(3, 13, 32)[:, :32])
    assert data.classes[data.labels[13]] == "cat" and data.images.frame == 1


@pytest.mark.parametrize(("name", "queries"), [("gldv2", "qrs"), ("gldv2_public", "u")])
def test_a_landmark_s_query_finds_what_its_line_lists(
    name: str, queries: str, tmp_path: Path
) -> None:
    """The rows are 24 training images, 8 index images and the queries, as the lists have them."""
    data = load_dataset(config(name, trees.gldv2(tmp_path / "landmarks")), tmp_path / "cache")
    test = split_dataset(data, SplitConfig(), "").test
    assert test.queries == len(queries) and len(test) == len(queries) + 8
    for position in range(len(queries)):
        further = [] if test.further is None else test.further.tolist()
        labels = {int(test.labels[position]), *(y for query, y in further if query == position)}
        gallery = range(len(queries), len(test))
        relevant = {int(test.index[at]) - 24 for at in gallery if int(test.labels[at]) in labels}
        query = queries[int(test.index[position]) - 32]
        assert relevant == {*trees.LANDMARK_QUERIES[query][0]}


def test_gpr1200_is_for_evaluation_only(tmp_path: Path) -> None:
    data = loaded("gpr1200", "GPR1200", tmp_path)
    for split in (SplitConfig(), SplitConfig(by="images"), SplitConfig(protocol="paper")):
        with pytest.raises(ConfigError, match=r"no training images.*`ablate evaluate`"):
            split_dataset(data, split, "")
    assert len(select_for_evaluation(data)) == 48


def test_a_manifest_has_queries(tmp_path: Path) -> None:
    data = loaded("manifest", "csv", tmp_path)
    assert split_dataset(data, SplitConfig(), "").test.queries == 6


@pytest.mark.parametrize(
    ("name", "usual", "trained", "tested"),
    [
        ("cub200", "CUB_200_2011", [f"{n:03d}.Made_Bird_{n}" for n in range(1, 7)], 21),
        ("cars196", "cars196", [f"{n:03d}" for n in range(1, 7)], 24),
        ("cars196", "stanford_cars", [f"{n:03d}" for n in range(1, 7)], 24),
        ("sop", "Stanford_Online_Products", [f"{n:05d}" for n in range(1, 7)], 21),
        ("folder", "parts", [f"train {n}" for n in range(6)], 24),
        *(
            (
                "inat2018",
                usual,
                [f"{('Aves', 'Plantae')[n % 2]}/{7 * n:04d}" for n in range(1, 7)],
                24,
            )
            for usual in ("Inaturalist", "inat2018")
        ),
        ("gldv2", "GLDv2", [f"{7 * n:06d}" for n in range(6)], 11),
        ("gpr1200", "GPR1200", [], 48),
    ],
)
def test_its_own_lists_say_what_trains(
    name: str, usual: str, trained: list[str], tested: int, tmp_path: Path
) -> None:
    data = loaded(name, usual, tmp_path)
    assert data.official is not None and len(data.official.test) == tested
    assert {data.classes[label] for label in data.labels[data.official.train]} == set(trained)
