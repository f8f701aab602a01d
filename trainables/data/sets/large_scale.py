"""Large data sets, and the test set that was drawn from some of them.

ImageNet-1K, iNaturalist 2018, Google Landmarks v2 and GPR1200.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

from trainables.config.images import DataConfig
from trainables.data.archives import (
    About,
    Count,
    build_damage_error,
    build_line_error,
    find_list,
    iterate_lines,
)
from trainables.data.dataset import DATASETS, Listing, Row
from trainables.data.fileset import FileSet
from trainables.data.sets.folder import SUFFIXES

KAGGLE, SOLUTION = "ILSVRC/Data/CLS-LOC", "LOC_val_solution.csv"
INAT_FOLDER, INAT_LIST = "Inat_dataset_splits", "Inaturalist_{}_set1.txt"
INAT_IMAGE = "train_val2018/<group>/<species id>/<file>"
# of Google Landmarks: folder of images → their list and its first line
LANDMARK_LISTS = {
    "train": ("train_clean.csv", "landmark_id,images"),
    "index": ("index.csv", "id"),
    "test": ("retrieval_solution_v2.1.csv", "id,images,Usage"),
}
LANDMARK_COUNTS = {"train": Count(81_313, 1_580_470), "gallery": Count(None, 761_757)}
LANDMARK_QUERY = "<id>,<index images>,Public or Private; or <id>,None,Ignored"
UNLISTED = "index, of no query"


@DATASETS.register("imagenet")
class ImageNet(FileSet):
    """1,000 classes of the WordNet; some images are CMYK, one is a PNG with the name of a JPEG.

    ImageNet-1K (ILSVRC 2012; Russakovsky et al., IJCV 2015), as it is unpacked:

        train/<wnid>/<file>.JPEG              1,281,167 images, 732 to 1,300 a class
        val/<wnid>/<file>.JPEG                50,000 images

    The usual script sorts val/ into these folders. Kaggle's archive has both in
    ILSVRC/Data/CLS-LOC/, val/ without class folders, and LOC_val_solution.csv with the classes.

    The validation images are the test; both have the same 1,000 classes, of which `data.split`
    holds out some for validation, from the training images.
    """

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


@DATASETS.register("inat2018")
class INaturalist2018(FileSet):
    """8,142 species of living beings, about 57 images of each; their numbers differ much.

    iNaturalist 2018 (Van Horn et al., CVPR 2018), in the split for retrieval of Smooth-AP. The
    pictures are those of train_val2018.tar.gz; the lists are in Inat_dataset_splits.zip of the
    authors of Smooth-AP, and are used by ROADMAP and the Recall@k surrogate:

        Inat_dataset_splits/Inaturalist_train_set1.txt, Inaturalist_test_set1.txt
            train_val2018/<group>/<species id>/<file>.jpg

    The lists may also lie beside train_val2018/. A class is a species, and no species is in both.

    References:
        Brown et al., "Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval", ECCV
        2020. https://arxiv.org/abs/2007.12163
    """

    ABOUT = About(
        title="iNaturalist 2018",
        markers=(
            (f"{INAT_FOLDER}/{INAT_LIST.format('train')}",),
            (INAT_LIST.format("train"),),
            ("train_val2018/",),
        ),
        folders=("Inaturalist", "iNaturalist2018", "inat2018", "inaturalist_2018"),
        offered="https://github.com/visipedia/inat_comp/tree/master/2018 (train_val2018.tar.gz) "
        "and https://github.com/Andrew-Brown1/Smooth_AP (Inat_dataset_splits.zip)",
        classes=f"its lists {INAT_LIST.format('train')} and {INAT_LIST.format('test')} divide the "
        "classes",
        counts={"train": Count(5_690, 325_846), "test": Count(2_452, 136_093)},
        counted="Brown et al., ECCV 2020",
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        lists = {}
        for part in ("train", "test"):
            name = INAT_LIST.format(part)
            lists[part] = find_list(root, [f"{INAT_FOLDER}/{name}", name], cls.ABOUT.offered)
        return Listing(root, lists["train"], [*_build_species_rows(lists)])


def _build_species_rows(lists: dict[str, Path]) -> Iterator[Row]:
    """Yield the images of the lists by part."""
    for part, where in lists.items():
        for line, path in iterate_lines(where):
            folders = path.split("/")
            if len(folders) != 4 or not folders[2].isdecimal():
                raise build_line_error(where, line, path, INAT_IMAGE)
            # zeros before the number let species of a group sort as numbers do
            yield Row(path, f"{folders[1]}/{int(folders[2]):04d}", part)


@DATASETS.register("gldv2")
class GoogleLandmarks(FileSet):
    """81,313 landmarks train; 750 private queries are searched in 761,757 images.

    Google Landmarks v2 (Weyand et al., CVPR 2020), version 2.1, for retrieval. The clean part of
    the training images trains (Yokoo et al., CVPR Workshops 2020). Test images are queries that are
    searched among the index images. `gldv2` has the private queries, by which papers compare, and
    `gldv2_public` the public ones:

        train_clean.csv                landmark_id,images        with blanks between the images
        index.csv                      id
        retrieval_solution_v2.1.csv    id,images,Usage           Public, Private or Ignored
        train/, index/, test/          a/b/c/<id>.jpg, where <id> begins with a, b, c

    The lists lie beside these folders, in metadata/, or each in the folder of its images.

    Relevant to a query are exactly the index images in its line. The index images that the same
    queries list are a class, so a query may have several classes (`Row.further`). All other index
    images are one class without queries. Only the images of these queries must be in test/.

    The makers number landmarks of training and index images independently, and do not state which
    landmarks are in both. So a landmark of the test may train, by other images.
    """

    USAGE: ClassVar[str] = "Private"
    ABOUT = About(
        title="Google Landmarks v2",
        markers=tuple((name,) for name, _ in LANDMARK_LISTS.values())
        + tuple(
            (f"{folder}/{LANDMARK_LISTS[home][0]}",)
            for home in LANDMARK_LISTS
            for folder in ("metadata", home)
        ),
        folders=("google-landmark", "google_landmarks_v2", "GLDv2"),
        offered="https://github.com/cvdfoundation/google-landmark (train_clean.csv, index.csv, "
        "retrieval_solution_v2.1.csv, and the images of train, index and test)",
        classes="its folders are the first characters of names; its CSV files list the landmarks",
        counts={**LANDMARK_COUNTS, "query": Count(None, 750)},
        counted="its makers' page, version 2.1",
        metrics=("map_at_100_of_found",),
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        lists = {
            home: find_list(root, [name, f"metadata/{name}", f"{home}/{name}"], cls.ABOUT.offered)
            for home, (name, _) in LANDMARK_LISTS.items()
        }
        rows = [*_build_landmark_rows(lists["train"]), *_build_query_rows(lists, cls.USAGE)]
        return Listing(root, lists["train"], rows)


@DATASETS.register("gldv2_public")
class PublicGoogleLandmarks(GoogleLandmarks):
    """The same with the 379 public queries."""

    USAGE = "Public"
    ABOUT = replace(GoogleLandmarks.ABOUT, counts={**LANDMARK_COUNTS, "query": Count(None, 379)})


def _build_landmark_rows(where: Path) -> Iterator[Row]:
    for line, (landmark, images) in _iterate_landmark_lines("train", where):
        for image in images.split():
            yield Row(_build_landmark_path("train", image, where, line), landmark.zfill(6), "train")


def _build_query_rows(lists: dict[str, Path], usage: str) -> Iterator[Row]:
    """Yield the index images, and then the queries of this usage."""
    # read which index images each query lists
    where = lists["test"]
    queries: dict[str, list[str]] = {}  # path → listed images
    listed_by = defaultdict[str, list[str]](list)  # index image → paths of queries
    for line, (query, images, query_usage) in _iterate_landmark_lines("test", where):
        is_ignored = query_usage == "Ignored"
        if not is_ignored and (query_usage not in ("Public", "Private") or not images.strip()):
            raise build_line_error(where, line, f"{query},{images},{query_usage}", LANDMARK_QUERY)
        if query_usage == usage:
            path = _build_landmark_path("test", query, where, line)
            queries[path] = list(dict.fromkeys(images.split()))
            for image in queries[path]:
                listed_by[image].append(path)

    # name each class of index images by its first image
    names: dict[tuple[str, ...], str] = {(): UNLISTED}
    class_of: dict[str, str] = {}
    for line, (image,) in _iterate_landmark_lines("index", lists["index"]):
        path = _build_landmark_path("index", image, lists["index"], line)
        key = tuple(listed_by.pop(image, ()))
        class_of[image] = names.setdefault(key, f"index {image}")
        yield Row(path, class_of[image], "test", "gallery")
    for image, paths in listed_by.items():  # that index.csv lacks, such as None
        raise build_damage_error(
            where, f"{paths[0]} lists the image {image}, which is not in index.csv"
        )

    for path, listed in queries.items():
        label, *further = dict.fromkeys(class_of[image] for image in listed)
        yield Row(path, label, "test", "query", further=tuple(further))


def _iterate_landmark_lines(home: str, where: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield number and fields of each line of a list, after a check of the first line."""
    _, head = LANDMARK_LISTS[home]
    for position, (line, text) in enumerate(iterate_lines(where)):
        fields = text.split(",")
        if len(fields) != head.count(",") + 1 or (position == 0 and text != head):
            raise build_line_error(where, line, text, head)
        if position > 0:
            yield line, fields


def _build_landmark_path(home: str, image: str, where: Path, line: int) -> str:
    if len(image) != 16 or not image.isalnum():
        raise build_line_error(where, line, image, "an image's id of 16 characters")
    return f"{home}/{image[0]}/{image[1]}/{image[2]}/{image}.jpg"


@DATASETS.register("gpr1200")
class Gpr1200(FileSet):
    """1,200 categories from six domains, 10 images of each; no image is for training.

    GPR1200 (Schall et al., MMM 2022), as GPR1200.zip unpacks; for evaluation only:

        images/<category>_<original name>.jpg

    Its categories were chosen by hand from six data sets: landmarks (Google Landmarks v2), nature
    (iNaturalist), sketches (ImageNet Sketch), objects (INSTRE), products (Stanford Online Products)
    and faces (IMDB-WIKI). A model that trained on one of these may have seen some of the images.

    Every image is searched among all others. The makers' code counts the query itself as the first
    hit; the metric `map_with_query` does so, too, and `map` does not.
    """

    ABOUT = About(
        title="GPR1200",
        markers=(("images/0_*",),),
        folders=("GPR1200",),
        offered="https://visual-computing.com/project/GPR1200/ (GPR1200.zip)",
        classes="its file names carry the classes",
        counts={"test": Count(1_200, 12_000)},
        counted="Schall et al., MMM 2022",
        metrics=("map_with_query",),
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        folder = root / "images"
        return Listing(folder, folder, [*_build_category_rows(folder)])


def _build_category_rows(folder: Path) -> Iterator[Row]:
    """Yield the images of the folder; other files are passed over."""
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 - a Path for each is slow
        if name.startswith(".") or not name.lower().endswith(SUFFIXES):
            continue
        category = re.match(r"(\d+)_.", name, re.ASCII)
        if category is None:
            raise build_damage_error(
                folder, f"the name {name!r} does not begin with a category's number and _"
            )
        yield Row(name, f"{int(category[1]):04d}", "test")
