"""The papers' data sets with their whole official lists, and pictures of few of the classes.

CIFAR's archives have no lists but the pictures themselves, of which there are a few.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.io import savemat

from tests.trainables.data.trees import CIFAR_NAMES, FINE_NAMES, car_table, picture, pixels
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


def cifar10(root: Path) -> None:
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        _pictures(root / f"{name}.bin", before=1)
    (root / "batches.meta.txt").write_text("\n".join(CIFAR_NAMES) + "\n\n")


def cifar100(root: Path) -> None:
    for name, times in (("train", 3), ("test", 1)):
        _pictures(root / f"{name}.bin", before=2, times=times)
    (root / "fine_label_names.txt").write_text("\n".join(FINE_NAMES) + "\n")


def _pictures(path: Path, before: int, times: int = 1) -> None:
    """As many classes as are shown elsewhere, `times` pictures of each."""
    labels = np.array([[label] * before for label in range(SHOWN)] * times, np.uint8)
    seed = sum(path.name.encode())
    made = [pixels(label, seed + n, 32)[:, :32] for n, (label, *_) in enumerate(labels.tolist())]
    rows = np.stack(made).transpose(0, 3, 1, 2).reshape(len(labels), -1)
    np.concatenate([labels, rows], 1).astype(np.uint8).tofile(path)


def imagenet(root: Path) -> None:
    wnids = [f"n{1440000 + label:08d}" for label in range(1_001)]
    for label, number, shown in images("imagenet", "train", 1):
        if shown and number < 3:
            name = f"{wnids[label]}/{wnids[label]}_{number}.JPEG"
            picture(root / "train" / name, label, number)
    truth = []
    for label, number, shown in images("imagenet", "test", 1):
        truth.append(label)
        if shown and number < 1:
            name = f"ILSVRC2012_val_{len(truth):08d}.JPEG"
            picture(root / "val" / name, label, 50 + number)
    devkit = root / "ILSVRC2012_devkit_t12" / "data"
    devkit.mkdir(parents=True)
    table = np.empty((1_000, 1), dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O")])
    for label in range(1, 1_001):
        table[label - 1, 0] = (np.array([[label]], np.uint16), wnids[label])
    savemat(devkit / "meta.mat", {"synsets": table})
    lines = "\n".join(map(str, truth))
    (devkit / "ILSVRC2012_validation_ground_truth.txt").write_text(lines + "\n")


def planted(folder: Path) -> Path:
    """All of them, under the names that they usually have."""
    for usual, plant in (
        ("cifar-10-batches-bin", cifar10),
        ("cifar-100-binary", cifar100),
        ("imagenet", imagenet),
        ("CUB_200_2011", cub200),
        ("cars196", cars196),
        ("Stanford_Online_Products", sop),
        ("inshop", inshop),
    ):
        (folder / usual).mkdir(parents=True)
        plant(folder / usual)
    return folder
