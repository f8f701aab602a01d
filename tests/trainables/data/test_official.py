"""Unpacked data sets are not taken for class folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.trainables.data import trees
from trainables.config.images import DataConfig
from trainables.data.dataset import fingerprint, load_dataset
from trainables.errors import ConfigError

INCOMPLETE = [
    ("sop", "", "bicycle_final/1_0.JPG cabinet_final/2_0.JPG"),
    ("inshop", "Eval/list_eval_partition.txt", "Img/img/MEN/1.jpg Img/img/WOMEN/1.jpg"),
    ("cars196", "cars_train_annos.mat", "a/1.jpg b/2.jpg"),
    ("cars196", "", "cars_train/1.jpg cars_test/2.jpg"),
    ("imagenet", "LOC_val_solution.csv", "train/n01/1.jpg val/1.jpg"),
]
CUB = (
    "images.txt image_class_labels.txt",
    " ".join(f"images/00{n}.{name}/{n}.jpg" for n, name in enumerate("ABCD", 1)),
)


def laid_out(root: Path, texts: str, images: str) -> Path:
    for name in (texts + " " + images).split():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name in images:
            Image.new("RGB", (9, 9)).save(root / name, "JPEG")
        else:
            (root / name).write_text("")
    return root


def config(root: Path) -> DataConfig:
    return DataConfig(name="folder", root=str(root), image_size=16)


def refuse(root: Path, cache: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        fingerprint(config(root), cache)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("name", "texts", "images"), INCOMPLETE)
def test_a_data_set_as_it_is_unpacked_is_named_with_its_loader(
    name: str, texts: str, images: str, tmp_path: Path
) -> None:
    message = refuse(laid_out(tmp_path / "root", texts, images), tmp_path / "cache")
    assert message.startswith("data.root: ")
    assert f"--dataset {name} --data-root {tmp_path}/root)" in message


@pytest.mark.parametrize("inside", ["img", "Img/img"])
def test_in_shop_s_images_alone_are_not_two_classes(inside: str, tmp_path: Path) -> None:
    text = "list_eval_partition.txt" if inside == "img" else "Eval/list_eval_partition.txt"
    laid_out(tmp_path / "set", text, f"{inside}/MEN/id_1/1.jpg {inside}/WOMEN/id_2/1.jpg")
    message = refuse(tmp_path / "set" / inside, tmp_path / "cache")
    assert f"{tmp_path}/set is In-Shop Clothes Retrieval as it is unpacked ({text})" in message


@pytest.mark.parametrize(
    ("name", "usual"), [case for case in trees.FIRST if case[0] not in ("folder", "manifest")]
)
def test_the_remedy_is_true(name: str, usual: str, tmp_path: Path) -> None:
    root = trees.TREES[name][usual](tmp_path / usual)
    message = refuse(root, tmp_path / "cache")
    assert f"--dataset {name} --data-root {root})" in message
    given = DataConfig(name=name, root=str(root), allow_partial=True)
    assert fingerprint(given, tmp_path / "cache")


def test_cub_s_images_are_its_classes(tmp_path: Path) -> None:
    """They were read so before there was a loader, and still are."""
    images = laid_out(tmp_path / "cub", *CUB) / "images"
    assert len(load_dataset(config(images), tmp_path / "cache").classes) == 4


def test_train_and_val_alone_are_no_two_classes(tmp_path: Path) -> None:
    root = laid_out(tmp_path / "mine", "", "train/a/1.jpg train/b/1.jpg val/a/1.jpg val/b/1.jpg")
    message = refuse(root, tmp_path / "cache")
    assert "rename val/ to test/" in message


def test_a_train_and_a_test_that_hold_images_are_classes(tmp_path: Path) -> None:
    root = laid_out(tmp_path / "mine", "", "train/1.jpg train/2.jpg test/1.jpg test/2.jpg")
    assert load_dataset(config(root), tmp_path / "cache").classes == ("test", "train")
