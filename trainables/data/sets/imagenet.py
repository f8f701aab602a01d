"""ImageNet-1K (ILSVRC 2012; Russakovsky et al., IJCV 2015), as it is unpacked.

    train/<wnid>/<file>.JPEG              1,281,167 images, 732 to 1,300 a class
    val/<wnid>/<file>.JPEG                50,000 images

The usual script sorts val/ into these folders. Kaggle's archive has both in ILSVRC/Data/CLS-LOC/,
val/ without class folders, and LOC_val_solution.csv with the classes.

The validation images are the test; both have the same 1,000 classes, of which `data.split` holds
out some for validation, from the training images.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Row
from trainables.data.files.data_set_markers import About, Count
from trainables.data.files.fileset import FileSet, Listing
from trainables.data.files.lists import build_line_error, iterate_lines

KAGGLE, SOLUTION = "ILSVRC/Data/CLS-LOC", "LOC_val_solution.csv"


@DATASETS.register("imagenet")
class ImageNet(FileSet):
    """1,000 classes of the WordNet; some images are CMYK, one is a PNG with the name of a JPEG."""

    ABOUT = About(
        title="ImageNet-1K",
        markers=(
            ("train/", "val/", SOLUTION),
            (f"{KAGGLE}/", SOLUTION),
            ("train/n01440764/", "val/n01440764/"),
        ),
        folders=("imagenet", "ImageNet-1K", "imagenet1k", "ILSVRC2012"),
        offered="https://image-net.org/download.php (ILSVRC2012_img_train.tar and "
        "ILSVRC2012_img_val.tar, behind a registration; sort val/ into class folders)",
        classes="train/ and val/ are its division",
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
            if name.lower().endswith(".jpeg"):
                yield Row(f"{folder.name}/{wnid}/{name}", wnid, part)


def _list_validation_rows(root: Path, base: Path) -> Iterator[Row]:
    """Yield the validation images as test images, by Kaggle's list or, without it, by folders."""
    solution, folder = root / SOLUTION, base / "val"
    if not solution.exists():
        yield from _list_folder_rows(folder, "test")
        return
    subfolders = {entry.name for entry in folder.iterdir() if entry.is_dir()}
    for line, text in islice(iterate_lines(solution), 1, None):  # the first line names the columns
        name, _, boxes = text.partition(",")
        wnids = set(boxes.split()[::5])  # each box is a class (WordNet id) and four numbers
        if len(wnids) != 1:
            raise build_line_error(solution, line, text, "<image>,<wnid> <box> …, of one class")
        wnid = wnids.pop()
        prefix = f"{wnid}/" if wnid in subfolders else ""
        yield Row(f"val/{prefix}{name}.JPEG", wnid, "test")
