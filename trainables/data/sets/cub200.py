"""CUB-200-2011 (Wah et al., Caltech 2011), as CUB_200_2011.tgz unpacks.

Classes 1–100 train, 101–200 are tested, as in all papers of deep metric learning since Song et al.,
"Deep Metric Learning via Lifted Structured Feature Embedding" (CVPR 2016), section 6.

    images.txt               <image id> <class folder>/<file>
    image_class_labels.txt   <image id> <class id>
    bounding_boxes.txt       <image id> <x> <y> <width> <height>
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from trainables.config.images import DataConfig
from trainables.config.registry import store_as_none
from trainables.data.dataset import DATASETS, Row
from trainables.data.decode import Box
from trainables.data.files.data_set_markers import About, Count
from trainables.data.files.fileset import FileSet, Listing
from trainables.data.files.lists import build_damage_error, build_line_error, iterate_fields

TRAINING = 100  # classes
IMAGE, LABEL = "<image id> <class folder>/<file>", "<image id> <class id>"
BOXES, BOX = "bounding_boxes.txt", "<image id> <x> <y> <width> <height>"


@DATASETS.register("cub200")
class Cub200(FileSet):
    """200 species of birds, about 59 images of each; few are grey."""

    ABOUT = About(
        title="CUB-200-2011",
        markers=(("images.txt", "image_class_labels.txt"),),
        folders=("CUB_200_2011", "CUB-200-2011", "cub200", "CUB200", "CUB"),
        offered="https://www.vision.caltech.edu/datasets/cub_200_2011/ (CUB_200_2011.tgz)",
        classes="its classes are the folders in images/",
        counts={"train": Count(100, 5_864), "test": Count(100, 5_924)},
        counted="Song et al., CVPR 2016, section 6",
    )

    class Config(DataConfig):
        """boxes: each image is cropped to its bounding box first."""

        name: Literal["cub200"] = "cub200"
        boxes: Annotated[bool | None, store_as_none(False)] = None

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        """List the images with their classes, and with bounding boxes if the option is set."""
        where, labels = root / "images.txt", root / "image_class_labels.txt"
        boxed = isinstance(config, cls.Config) and config.boxes
        boxes = _read_boxes(root / BOXES) if boxed else None
        return Listing(root / "images", where, _build_rows(where, labels, boxes))


def _build_rows(images: Path, labels: Path, boxes: dict[int, Box] | None) -> Iterator[Row]:
    """Yield the images of the list `images`, with the class and box that have the same image id."""
    classes = {image: label for _, (image, label) in iterate_fields(labels, LABEL, (int, int))}
    for line, (image, path) in iterate_fields(images, IMAGE, (int, str)):
        folder = path.rpartition("/")[0]
        if not folder:
            raise build_line_error(images, line, f"{image} {path}", IMAGE)
        # each image needs a line in the list of classes, and in that of boxes if it is used
        for file, table in ((labels, classes), (labels.with_name(BOXES), boxes)):
            if table is not None and image not in table:
                raise build_damage_error(file, f"the list has no line for image {image} ({path})")
        part = "train" if classes[image] <= TRAINING else "test"
        yield Row(path, folder, part, box=None if boxes is None else boxes[image])


def _read_boxes(path: Path) -> dict[int, Box]:
    fields = iterate_fields(path, BOX, (int, float, float, float, float))
    return {image: (x, y, x + width, y + height) for _, (image, x, y, width, height) in fields}
