"""The four benchmarks of deep metric learning: CUB-200-2011, Cars196, SOP and In-Shop.

The division of the first two is that of Song et al., "Deep Metric Learning via Lifted Structured
Feature Embedding" (CVPR 2016), section 6, as in all papers since: the first half of the classes
trains, the second is tested. The others come with lists of their own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from trainables.config.images import DataConfig
from trainables.config.registry import store_as_none
from trainables.data.archives import (
    About,
    Count,
    build_damage_error,
    build_line_error,
    find_list,
    iterate_fields,
)
from trainables.data.dataset import DATASETS, Listing, Row
from trainables.data.decode import Box
from trainables.data.fileset import FileSet
from trainables.words.errors import ConfigError

# lines of lists
CUB_IMAGE, CUB_LABEL = "<image id> <class folder>/<file>", "<image id> <class id>"
CUB_BOXES, CUB_BOX = "bounding_boxes.txt", "<image id> <x> <y> <width> <height>"
SOP_IMAGE = "<image id> <class id> <super class id> <path>, below a head"
PARTITION, INSHOP_IMAGE = "list_eval_partition.txt", "<path> <item> train, query or gallery"
LABELLED_CARS = "cars_test_annos_withlabels.mat"


@DATASETS.register("cub200")
class Cub200(FileSet):
    """200 species of birds, about 59 images of each; few are grey.

    CUB-200-2011 (Wah et al., Caltech 2011), as CUB_200_2011.tgz unpacks:

        images.txt               <image id> <class folder>/<file>
        image_class_labels.txt   <image id> <class id>
        bounding_boxes.txt       <image id> <x> <y> <width> <height>
    """

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
        boxed = isinstance(config, cls.Config) and config.boxes
        boxes = _read_boxes(root / CUB_BOXES) if boxed else None
        return Listing(root / "images", root / "images.txt", [*_build_cub_rows(root, boxes)])


def _build_cub_rows(root: Path, boxes: dict[int, Box] | None) -> Iterator[Row]:
    """Yield the images of images.txt, with the class and the box that have the same image id."""
    where, label_list = root / "images.txt", root / "image_class_labels.txt"
    labels = {i: label for _, (i, label) in iterate_fields(label_list, CUB_LABEL, (int, int))}
    for line, (image, path) in iterate_fields(where, CUB_IMAGE, (int, str)):
        folder = path.rpartition("/")[0]
        if not folder:
            raise build_line_error(where, line, f"{image} {path}", CUB_IMAGE)
        # each image needs a line in the list of classes, and in that of boxes if it is used
        for file, table in ((label_list, labels), (root / CUB_BOXES, boxes)):
            if table is not None and image not in table:
                raise build_damage_error(file, f"the list has no line for image {image} ({path})")
        part = "train" if labels[image] <= 100 else "test"
        yield Row(path, folder, part, box=None if boxes is None else boxes[image])


def _read_boxes(path: Path) -> dict[int, Box]:
    fields = iterate_fields(path, CUB_BOX, (int, float, float, float, float))
    return {image: (x, y, x + width, y + height) for _, (image, x, y, width, height) in fields}


@DATASETS.register("cars196")
class Cars196(FileSet):
    """196 models of cars, about 83 images of each; few are grey.

    Krause et al., "3D Object Representations for Fine-Grained Categorization", 3dRR 2013. Its
    makers offer the same 16,185 images in two ways, each with files of its own:

        cars_annos.mat, car_ims/
        devkit/cars_train_annos.mat, cars_train/, cars_test/, cars_test_annos_withlabels.mat
            (the last beside devkit/ or in it)

    Classes 1–98 train, 99–196 are tested, whichever of the folders cars_train and cars_test an
    image lies in: these divide for classification.
    """

    ABOUT = About(
        title="Cars196",
        markers=(
            ("cars_annos.mat",),
            ("devkit/cars_train_annos.mat",),
            ("cars_train/", "cars_test/"),
            ("cars_train_annos.mat",),
            (LABELLED_CARS,),
        ),
        folders=("cars196", "CARS196", "stanford_cars", "cars"),
        offered="https://ai.stanford.edu/~jkrause/cars/car_dataset.html (car_ims.tgz and "
        f"cars_annos.mat, or cars_train.tgz, cars_test.tgz, car_devkit.tgz and {LABELLED_CARS})",
        classes="its folders are no classes, which stand in cars_annos.mat (or devkit/)",
        counts={"train": Count(98, 8_054), "test": Count(98, 8_131)},
        counted="Song et al., CVPR 2016, section 6",
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        """List the images by cars_annos.mat, or else by the two lists for training and test."""
        annotations = root / "cars_annos.mat"
        if annotations.exists():
            return Listing(root, annotations, [*_read_annotations(annotations, "relative_im_path")])
        train, test = (
            find_list(root, [name, f"devkit/{name}"], cls.ABOUT.offered)
            for name in ("cars_train_annos.mat", LABELLED_CARS)
        )
        rows = [
            *_read_annotations(train, "fname", "cars_train/"),
            *_read_annotations(test, "fname", "cars_test/"),
        ]
        return Listing(root, train, rows)


def _read_annotations(where: Path, path_field: str, folder: str = "") -> Iterator[Row]:
    """Yield the images whose paths and classes the array `annotations` of a MATLAB file lists."""
    from scipy.io import loadmat

    try:
        table = loadmat(where, variable_names=["annotations"], squeeze_me=True)["annotations"]
        names, labels = (table[field].reshape(-1) for field in (path_field, "class"))
    except Exception as error:  # parsers raise many types: ValueError, TypeError, zlib.error…
        raise ConfigError(
            str(where),
            f"the annotations cannot be read ({error})",
            "Use the makers' file, which has the format of MATLAB before 7.3",
        ) from error
    for name, label in zip(names, labels, strict=True):
        if not isinstance(label, int) or label < 1 or not isinstance(name, str):
            raise build_damage_error(where, f"the class {label!r} of {name!r} must be 1 or more")
        yield Row(folder + name, f"{label:03d}", "train" if label <= 98 else "test")


@DATASETS.register("sop")
class StanfordOnlineProducts(FileSet):
    """22,634 products, about 5 images of each.

    Song et al., CVPR 2016, as Stanford_Online_Products.zip unpacks. The two lists are the division;
    their first line is a head:

        Ebay_train.txt, Ebay_test.txt    <image id> <class id> <super class id> <folder>/<file>
    """

    ABOUT = About(
        title="Stanford Online Products",
        markers=(("Ebay_train.txt",), ("Ebay_test.txt",), ("Ebay_info.txt",), ("bicycle_final/",)),
        folders=("Stanford_Online_Products", "SOP", "online_products", "OnlineProducts"),
        offered="https://cvgl.stanford.edu/projects/lifted_struct/ (Stanford_Online_Products.zip)",
        classes="its 12 folders are super-classes, the classes stand in Ebay_train.txt and "
        "Ebay_test.txt",
        counts={"train": Count(11_318, 59_551), "test": Count(11_316, 60_502)},
        counted="Song et al., CVPR 2016, section 6",
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        """List the images of both lists, with labels that sort as numbers do."""
        types = (str, int, str, str)
        rows = [
            Row(path, f"{label:05d}", part)
            for part in ("train", "test")
            for _, (_, label, _, path) in iterate_fields(
                root / f"Ebay_{part}.txt", SOP_IMAGE, types, start=1
            )
        ]
        return Listing(root, root / "Ebay_train.txt and Ebay_test.txt", rows)


@DATASETS.register("inshop")
class InShop(FileSet):
    """7,982 items of clothes, about 7 images of each; queries are searched in a gallery.

    In-Shop Clothes Retrieval of DeepFashion (Liu et al., CVPR 2016), as it is unpacked:

        list_eval_partition.txt    also in Eval/: a count, a head, and lines of
                                   <path>  <item>  train | query | gallery

    with any number of blanks between. Its images, img.zip, lie in img/ or Img/img/. A query is
    looked for in the gallery alone; validation classes, which come out of the training items and
    have no such roles, are evaluated each image among all others.
    """

    ABOUT = About(
        title="In-Shop Clothes Retrieval",
        markers=((PARTITION,), (f"Eval/{PARTITION}",)),
        folders=(
            *("In-shop Clothes Retrieval Benchmark", "In-shop_Clothes_Retrieval_Benchmark"),
            *("inshop", "In-Shop"),
        ),
        offered="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html "
        "(img.zip and list_eval_partition.txt)",
        classes=f"its folders are kinds of clothes, the classes are the items of {PARTITION}",
        counts={
            "train": Count(3_997, 25_882),
            "query": Count(3_985, 14_218),
            "gallery": Count(3_985, 12_612),
        },
        counted="Liu et al., CVPR 2016, and its partition file",
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        """List the images of the partition file, whose paths begin with img/."""
        where = find_list(root, [PARTITION, f"Eval/{PARTITION}"], cls.ABOUT.offered)
        base = next((root / name for name in ("", "Img") if (root / name / "img").is_dir()), None)
        if base is None:
            raise ConfigError(
                "data.root", f"{root} has neither img/ nor Img/img/", "Unpack img.zip in it"
            )
        return Listing(base, where, [*_build_inshop_rows(where)])


def _build_inshop_rows(where: Path) -> Iterator[Row]:
    """Yield the images of the partition file, below two lines; tested ones are query or gallery."""
    for line, (path, item, kind) in iterate_fields(where, INSHOP_IMAGE, (str, str, str), start=2):
        if kind not in ("train", "query", "gallery"):
            raise build_line_error(where, line, f"{path} {item} {kind}", INSHOP_IMAGE)
        part, role = ("train", "") if kind == "train" else ("test", kind)
        yield Row(path, item, part, role)
