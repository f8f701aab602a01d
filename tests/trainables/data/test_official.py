"""Unpacked data sets are not taken for class folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.trainables.data import trees
from trainables.config.images import DataConfig, SplitConfig
from trainables.data.dataset import fingerprint, load_dataset
from trainables.data.splits import split_dataset
from trainables.errors import ConfigError

TREES = {
    "Stanford Online Products": [
        ("", "bicycle_final/1_0.JPG cabinet_final/2_0.JPG"),
        ("Ebay_train.txt Ebay_test.txt", "bicycle_final/1_0.JPG cabinet_final/2_0.JPG"),
    ],
    "In-Shop Clothes Retrieval": [
        ("list_eval_partition.txt", "img/MEN/Denim/id_1/1.jpg img/WOMEN/Tees/id_2/1.jpg"),
        ("Eval/list_eval_partition.txt", "Img/img/MEN/1.jpg Img/img/WOMEN/1.jpg"),
    ],
    "Cars196": [
        ("cars_annos.mat", "car_ims/1.jpg more/2.jpg"),
        ("cars_train_annos.mat", "cars_train/1.jpg cars_test/2.jpg"),
        ("cars_train_annos.mat", "a/1.jpg b/2.jpg"),
        ("devkit/cars_train_annos.mat", "train/1.jpg test/2.jpg"),
        ("", "cars_train/1.jpg cars_test/2.jpg"),
    ],
    "CIFAR-10": [("batches.meta data_batch_1", "a/1.jpg b/1.jpg")],
    "ImageNet-1K": [("LOC_val_solution.csv", "train/n01/1.jpg val/1.jpg")],
    "CUB-200-2011": [
        ("images.txt image_class_labels.txt", "images/001.A/1.jpg images/002.B/2.jpg other/3.jpg")
    ],
}


def laid_out(root: Path, texts: str, images: str) -> Path:
    for name in (texts + " " + images).split():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name in images:
            Image.new("RGB", (9, 9)).save(root / name, "JPEG")
        else:
            (root / name).write_text("")
    return root


def config(root: Path, **split: object) -> DataConfig:
    return DataConfig(name="folder", root=str(root), image_size=16, split=SplitConfig(**split))


def said(root: Path, cache: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        fingerprint(config(root), cache)
    assert "\n" not in str(caught.value)
    return str(caught.value)


NAMES = {
    "Stanford Online Products": "sop",
    "In-Shop Clothes Retrieval": "inshop",
    "Cars196": "cars196",
    "CUB-200-2011": "cub200",
    "CIFAR-10": "cifar10",
    "ImageNet-1K": "imagenet",
}


@pytest.mark.parametrize(
    ("name", "texts", "images"), [(name, *each) for name, made in TREES.items() for each in made]
)
def test_a_data_set_as_it_is_unpacked_is_named_with_its_loader(
    name: str, texts: str, images: str, tmp_path: Path
) -> None:
    message = said(laid_out(tmp_path / "root", texts, images), tmp_path / "cache")
    assert message.startswith(f"data.root: found {name} as it is unpacked (")
    assert "expected a folder that holds one folder of images per class. " in message
    assert f"Say data.name: {NAMES[name]}, with this folder" in message
    assert f"--dataset {NAMES[name]} --data-root {tmp_path}/root)" in message


@pytest.mark.parametrize("inside", ["img", "Img/img"])
def test_in_shop_s_images_alone_are_not_two_classes(inside: str, tmp_path: Path) -> None:
    text = "list_eval_partition.txt" if inside == "img" else "Eval/list_eval_partition.txt"
    laid_out(tmp_path / "set", text, f"{inside}/MEN/id_1/1.jpg {inside}/WOMEN/id_2/1.jpg")
    message = said(tmp_path / "set" / inside, tmp_path / "cache")
    assert f"In-Shop Clothes Retrieval as it is unpacked ({text}) in {tmp_path}/set:" in message


@pytest.mark.parametrize(
    ("name", "usual"), [case for case in trees.FIRST if case[0] not in ("folder", "manifest")]
)
def test_the_remedy_is_true(name: str, usual: str, tmp_path: Path) -> None:
    root = trees.TREES[name][usual](tmp_path / usual)
    message = said(root, tmp_path / "cache")
    assert f"--dataset {name} --data-root {root})" in message
    given = DataConfig(name=name, root=str(root), allow_partial=True)
    assert fingerprint(given, tmp_path / "cache")


def test_cub_s_images_are_its_classes(tmp_path: Path) -> None:
    """They were read so before there was a loader, and still are."""
    cub = laid_out(tmp_path / "cub", *TREES["CUB-200-2011"][0]) / "images"
    laid_out(cub.parent, "", "images/003.C/1.jpg images/004.D/1.jpg")
    of_cub = config(cub, order="sorted", test=0.5)
    found = split_dataset(load_dataset(of_cub, tmp_path / "cache"), of_cub.split, "")
    assert found.test.classes == ("003.C", "004.D")


def test_train_and_val_alone_are_no_two_classes(tmp_path: Path) -> None:
    root = laid_out(tmp_path / "mine", "", "train/a/1.jpg train/b/1.jpg val/a/1.jpg val/b/1.jpg")
    message = said(root, tmp_path / "cache")
    assert "found train/ and val/ in" in message and "Rename val/ to test/" in message


def test_a_train_and_a_test_that_hold_images_are_classes(tmp_path: Path) -> None:
    root = laid_out(tmp_path / "mine", "", "train/1.jpg train/2.jpg test/1.jpg test/2.jpg")
    assert load_dataset(config(root), tmp_path / "cache").classes == ("test", "train")
