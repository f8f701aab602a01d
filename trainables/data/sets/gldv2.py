"""Google Landmarks v2 (Weyand et al., CVPR 2020), version 2.1, for retrieval.

The clean part of the training images trains (Yokoo et al., CVPR Workshops 2020). Test images are
queries that are searched among the index images. `gldv2` has the private queries, by which papers
compare, and `gldv2_public` the public ones:

    train_clean.csv                landmark_id,images        with blanks between the images
    index.csv                      id
    retrieval_solution_v2.1.csv    id,images,Usage           Public, Private or Ignored
    train/, index/, test/          a/b/c/<id>.jpg, where an id begins with the characters a, b, c

The lists lie beside these folders, in metadata/, or each in the folder of its images.

Relevant to a query are exactly the index images in its line. The index images that the same queries
list are a class, so a query may have several classes (`Row.further`). All other index images are
one class without queries. Only the images of these queries must be in test/.

The makers number landmarks of training and index images independently, and do not state which
landmarks are in both. So a landmark of the test may train, by other images.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Row
from trainables.data.files.data_set_markers import About, Count
from trainables.data.files.fileset import FileSet, Listing
from trainables.data.files.lists import (
    build_damage_error,
    build_line_error,
    find_list,
    iterate_lines,
)

# folder of images → their list and its first line
LISTS = {
    "train": ("train_clean.csv", "landmark_id,images"),
    "index": ("index.csv", "id"),
    "test": ("retrieval_solution_v2.1.csv", "id,images,Usage"),
}
COUNTS = {"train": Count(81_313, 1_580_470), "gallery": Count(None, 761_757)}
QUERY = "<id>,<index images>,Public or Private; or <id>,None,Ignored"
UNLISTED = "index, of no query"


@DATASETS.register("gldv2")
class GoogleLandmarks(FileSet):
    """81,313 landmarks train; 750 private queries are searched in 761,757 images."""

    USAGE: ClassVar[str] = "Private"
    ABOUT = About(
        title="Google Landmarks v2",
        markers=tuple((name,) for name, _ in LISTS.values())
        + tuple((f"{folder}/{LISTS[home][0]}",) for home in LISTS for folder in ("metadata", home)),
        folders=("google-landmark", "google_landmarks_v2", "GLDv2"),
        offered="https://github.com/cvdfoundation/google-landmark (train_clean.csv, index.csv, "
        "retrieval_solution_v2.1.csv, and the images of train, index and test)",
        classes="its folders are the first characters of names; its CSV files list the landmarks",
        counts={**COUNTS, "query": Count(None, 750)},
        counted="its makers' page, version 2.1",
        metrics=("map_at_100_of_found",),
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        lists = {
            home: find_list(root, [name, f"metadata/{name}", f"{home}/{name}"], cls.ABOUT.offered)
            for home, (name, _) in LISTS.items()
        }
        rows = [*_build_training_rows(lists["train"]), *_build_test_rows(lists, cls.USAGE)]
        return Listing(root, lists["train"], rows)


@DATASETS.register("gldv2_public")
class PublicGoogleLandmarks(GoogleLandmarks):
    """The same with the 379 public queries."""

    USAGE = "Public"
    ABOUT = replace(GoogleLandmarks.ABOUT, counts={**COUNTS, "query": Count(None, 379)})


def _build_training_rows(where: Path) -> Iterator[Row]:
    for line, (landmark, images) in _iterate_rows("train", where):
        for image in images.split():
            yield Row(_build_path("train", image, where, line), landmark.zfill(6), "train")


def _build_test_rows(lists: dict[str, Path], usage: str) -> Iterator[Row]:
    """Yield the index images, and then the queries of this usage."""
    # read which index images each query lists
    where = lists["test"]
    queries: dict[str, list[str]] = {}  # path → listed images
    listed_by = defaultdict[str, list[str]](list)  # index image → paths of queries
    for line, (query, images, query_usage) in _iterate_rows("test", where):
        is_ignored = query_usage == "Ignored"
        if not is_ignored and (query_usage not in ("Public", "Private") or not images.strip()):
            raise build_line_error(where, line, f"{query},{images},{query_usage}", QUERY)
        if query_usage == usage:
            path = _build_path("test", query, where, line)
            queries[path] = list(dict.fromkeys(images.split()))
            for image in queries[path]:
                listed_by[image].append(path)

    # name each class of index images by its first image
    names: dict[tuple[str, ...], str] = {(): UNLISTED}
    class_of: dict[str, str] = {}
    for line, (image,) in _iterate_rows("index", lists["index"]):
        path = _build_path("index", image, lists["index"], line)
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


def _iterate_rows(home: str, where: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield number and fields of each line of a list, after a check of the first line."""
    _, head = LISTS[home]
    for line, text in islice(iterate_lines(where), 1):
        if text != head:
            raise build_line_error(where, line, text, head)
    for line, text in islice(iterate_lines(where), 1, None):
        fields = text.split(",")
        if len(fields) != head.count(",") + 1:
            raise build_line_error(where, line, text, head)
        yield line, fields


def _build_path(home: str, image: str, where: Path, line: int) -> str:
    if len(image) != 16 or not image.isalnum():
        raise build_line_error(where, line, image, "an image's id of 16 characters")
    return f"{home}/{image[0]}/{image[1]}/{image[2]}/{image}.jpg"
