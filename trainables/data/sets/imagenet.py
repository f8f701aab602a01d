"""ImageNet-1K (ILSVRC 2012; Russakovsky et al., IJCV 2015), as it is unpacked.

    train/<wnid>/<file>.JPEG              1,281,167 images, 732 to 1,300 a class
    val/ILSVRC2012_val_<number>.JPEG      50,000 images, whose classes stand in a file of their own

The file is the devkit's (ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt: on line
n the number of image n's class, which data/meta.mat names) or Kaggle's (LOC_val_solution.csv, with
the images in ILSVRC/Data/CLS-LOC/). Where val/ holds folders of the classes' names, as after the
usual script, these are the classes.

The validation images are the test; both have the same 1,000 classes, of which `data.split` holds
out some for validation, from the training images.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Row
from trainables.data.files.data_set_markers import About, Count
from trainables.data.files.fileset import FileSet, Listing
from trainables.data.files.lists import (
    build_line_error,
    iterate_fields,
    iterate_lines,
    parse_number,
    read_structs,
)

KAGGLE, SOLUTION = "ILSVRC/Data/CLS-LOC", "LOC_val_solution.csv"
DEVKIT = ("ILSVRC2012_devkit_t12/data/", "devkit/data/", "data/", "")
TRUTH = "ILSVRC2012_validation_ground_truth.txt"
SUFFIX = ".jpeg"


@DATASETS.register("imagenet")
class ImageNet(FileSet):
    """1,000 classes of the WordNet; some images are CMYK, one is a PNG with the name of a JPEG."""

    NAME = "imagenet"
    REVISION = 1
    ABOUT = About(
        title="ImageNet-1K",
        markers=(
            *(("train/", "val/", f"{folder}{TRUTH}") for folder in DEVKIT),
            ("train/", "val/", SOLUTION),
            (f"{KAGGLE}/", SOLUTION),
            ("train/n01440764/", "val/n01440764/"),
        ),
        folders=("imagenet", "ImageNet-1K", "imagenet1k", "ILSVRC2012"),
        offered="https://image-net.org/download.php (ILSVRC2012_img_train.tar, "
        "ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz), behind a registration",
        classes="train/ and val/ are its division, and val/ has no class folders",
        counts={"train": Count(1_000, 1_281_167), "test": Count(1_000, 50_000)},
        counted="Russakovsky et al., IJCV 2015, table 2",
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        base = root / KAGGLE if (root / KAGGLE).is_dir() else root
        rows = [*_list_folder_rows(base / "train", "train"), *_list_validation_rows(root, base)]
        return Listing(base, base, rows)


def _list_folder_rows(folder: Path, part: str) -> Iterator[Row]:
    for wnid in sorted(entry.name for entry in folder.iterdir() if entry.is_dir()):
        for name in sorted(os.listdir(folder / wnid)):  # noqa: PTH208 - a Path for each is slow
            if name.lower().endswith(SUFFIX):
                yield Row(f"{folder.name}/{wnid}/{name}", wnid, part)


def _list_validation_rows(root: Path, base: Path) -> Iterator[Row]:
    if (root / SOLUTION).exists():
        classes = _read_kaggle_truth(root / SOLUTION)
    else:
        truth = next((root / at / TRUTH for at in DEVKIT if (root / at / TRUTH).exists()), None)
        if truth is None:
            yield from _list_folder_rows(base / "val", "test")
            return
        classes = _read_devkit_truth(truth)
    folders = {entry.name for entry in (base / "val").iterdir() if entry.is_dir()}
    for name, wnid in classes:
        folder = f"{wnid}/" if wnid in folders else ""
        yield Row(f"val/{folder}{name}.JPEG", wnid, "test")


def _read_devkit_truth(truth: Path) -> Iterator[tuple[str, str]]:
    meta = truth.with_name("meta.mat")
    table = read_structs(meta, "synsets", ("ILSVRC2012_ID", "WNID"))
    names = dict(zip(table["ILSVRC2012_ID"], table["WNID"], strict=True))
    for line, (number,) in iterate_fields(truth, "the number of a class", (parse_number,)):
        if number not in names:
            raise build_line_error(truth, line, str(number), f"a class of {meta.name}")
        yield f"ILSVRC2012_val_{line:08d}", str(names[number])


def _read_kaggle_truth(solution: Path) -> Iterator[tuple[str, str]]:
    expected = "<image>,<wnid> <box> …, below a head"
    for line, text in islice(iterate_lines(solution), 1, None):
        name, _, boxes = text.partition(",")
        if not boxes.split():
            raise build_line_error(solution, line, text, expected)
        wnids = set(boxes.split()[::5])  # a class and four numbers for each box
        if len(wnids) != 1:
            raise build_line_error(solution, line, text, "boxes of one class")
        yield name, wnids.pop()
