"""The papers' data sets with their whole official lists, and pictures of few of the classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.io import savemat

from tests.trainables.data.trees import car_table, picture
from trainables.data.dataset import DATASETS

SHOWN, EACH = 6, 4  # classes of a part that have pictures, and how many of them


def images(name: str, part: str, first: int) -> Iterator[tuple[int, int, bool]]:
    """Class, number within it, and whether there is a picture, of so many images of so many classes
    as the makers say; classes are counted from `first`."""
    about = DATASETS[name].ABOUT
    assert about is not None
    count = about.counts[part]
    for label in range(count.classes):
        more = label < count.images % count.classes
        for number in range(count.images // count.classes + more):
            yield first + label, number, label < SHOWN and number < EACH


def cub200(root: Path) -> None:
    lists: dict[str, list[str]] = {"images.txt": [], "image_class_labels.txt": []}
    for part, first in (("train", 1), ("test", 101)):
        for label, number, shown in images("cub200", part, first):
            image = len(lists["images.txt"]) + 1
            path = f"{label:03d}.Made_Bird/Made_Bird_{number:04d}_{image}.jpg"
            lists["images.txt"].append(f"{image} {path}")
            lists["image_class_labels.txt"].append(f"{image} {label}")
            if shown:
                picture(root / "images" / path, label, number)
    for name, lines in lists.items():
        (root / name).write_text("\n".join(lines) + "\n")


def cars196(root: Path) -> None:
    rows: list[tuple[str, int]] = []
    for part, first in (("train", 1), ("test", 99)):
        for label, number, shown in images("cars196", part, first):
            rows.append((f"car_ims/{len(rows) + 1:06d}.jpg", label))
            if shown:
                picture(root / rows[-1][0], label, number)
    names = np.array([[f"Made Car {label}" for label in range(1, 197)]], object)
    table = car_table(rows, "relative_im_path")
    savemat(root / "cars_annos.mat", {"annotations": table, "class_names": names})


def sop(root: Path) -> None:
    image = 0
    for part, first in (("train", 1), ("test", 11_319)):
        lines = ["image_id class_id super_class_id path"]
        for label, number, shown in images("sop", part, first):
            image += 1
            path = f"bicycle_final/{111085122870 + label}_{number}.JPG"
            lines.append(f"{image} {label} 1 {path}")
            if shown:
                picture(root / path, label, number)
        (root / f"Ebay_{part}.txt").write_text("\n".join(lines) + "\n")


def inshop(root: Path) -> None:
    lines = []
    for part, first in (("train", 1), ("query", 3_998), ("gallery", 3_998)):
        for label, number, shown in images("inshop", part, first):
            item = f"id_{label:08d}"
            path = f"img/WOMEN/Dresses/{item}/{number:02d}_{part}.jpg"
            lines.append(f"{path:<70}{item:<15}{part}")
            if shown:
                picture(root / path, label, number)
    head = [str(len(lines)), "image_name item_id evaluation_status"]
    (root / "list_eval_partition.txt").write_text("\n".join([*head, *lines]) + "\n")


def planted(folder: Path) -> Path:
    """All of them, under the names that they usually have."""
    for usual, plant in (
        ("CUB_200_2011", cub200),
        ("cars196", cars196),
        ("Stanford_Online_Products", sop),
        ("inshop", inshop),
    ):
        (folder / usual).mkdir(parents=True)
        plant(folder / usual)
    return folder
