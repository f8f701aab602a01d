"""How a folder of one's own is laid out decides what it means: it is read right, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainables.config.images import DataConfig, SplitConfig
from trainables.data.dataset import DATASETS, Dataset, count_parts
from trainables.data.splits import split_dataset
from trainables.words.errors import ConfigError

CLASSES = ("a", "b", "c")


def lay(root: Path, *folders: str) -> DataConfig:
    """Two files in each folder; {} stands for each of three classes, a final slash for no file."""
    for folder in folders:
        for place in [folder.format(name) for name in CLASSES] if "{}" in folder else [folder]:
            (root / place).mkdir(parents=True, exist_ok=True)
            for number in () if place.endswith("/") else (1, 2):
                (root / place / f"{number}.jpg").write_bytes(b"listed, not decoded")
    return DataConfig(name="folder", root=str(root))


def read(root: Path, *folders: str) -> Dataset:
    rows = DATASETS["folder"].without_pixels(lay(root, *folders), root.parent / "cache")
    assert rows is not None
    return rows


def refusal(root: Path, *folders: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(root, *folders)
    assert str(caught.value).startswith("data.root: ") and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "names",
    [
        ("train", "valid", "test"),
        ("train", "validation", "test"),
        ("Train", "Test"),
        ("TRAINING", "VAL", "TESTING"),
        ("training", "test"),
        ("train", "query", "gallery"),
        ("Train", "Valid", "Query", "Gallery"),
        ("query", "gallery"),
        ("valid", "test"),
    ],
    ids="/".join,
)
def test_names_of_splits_divide_a_folder(names: tuple[str, ...], tmp_path: Path) -> None:
    """Query and gallery show the same classes, all other folders classes of their own."""
    meanings = {"tr": "train", "va": "val", "te": "test", "qu": "query", "ga": "gallery"}
    parts = {name: meanings[name[:2].lower()] for name in names}
    labels = {name: "t" if part in ("query", "gallery") else part for name, part in parts.items()}
    folders = [f"{name}/{label}{{}}" for name, label in labels.items()]
    counts = count_parts(read(tmp_path / "root", *folders, ".git/{}", "__MACOSX/train/{}"))
    expected = dict.fromkeys(parts.values(), 6)
    expected |= {"test": 12} if "query" in parts.values() else {}
    assert {part: count.images for part, count in counts.items()} == expected
    assert all(count.classes == 3 for count in counts.values())


def test_queries_are_searched_in_the_gallery_and_roles_are_part_of_the_content(
    tmp_path: Path,
) -> None:
    rows = read(tmp_path / "one", "train/{}", "query/t{}", "gallery/t{}")
    test = split_dataset(rows, SplitConfig(), "").test
    assert test.queries == 6 and len(test) == 12 and test.classes == ("ta", "tb", "tc")
    digests = set()
    for name, folders in (("two", ("query/t{}", "gallery/t{}")), ("three", ("test/t{}",))):
        config = lay(tmp_path / name, "train/{}", *folders)
        digests.add(DATASETS["folder"].fingerprint(config, tmp_path / "cache"))
    assert len(digests) == 2


def test_images_of_the_training_classes_may_be_the_test(tmp_path: Path) -> None:
    rows = read(tmp_path / "root", "Train/{}", "Valid/{}", "Test/{}")
    assert rows.official is not None and rows.official.shared


@pytest.mark.parametrize(
    ("folders", "fragments"),
    [
        # folders that may be splits or classes
        (("seen/{}", "unseen/{}"), ("seen/, unseen/", "call them train, val", "put the images")),
        (("train/{}", "holdout/{}"), ("holdout/, train/", "call them train, val")),
        (("fold0/{}", "fold1/{}", "fold2/{}"), ("fold0/, fold1/, fold2/", "manifest")),
        (("trainA/{}", "testA/{}"), ("testA/, trainA/", "call them")),
        (("x", "y", "more/{}"), ("images of more/", "put the images")),
        (("x/1", "x/2", "y/1", "z/1"), ("images of x/", "put the images")),
        (("train/{}", "test/query/{}", "test/gallery/{}"), ("gallery/, query/", "root/test")),
        (("train/{}/1", "train/{}/2", "test/{}"), ("images of a/, b/, c/", "root/train")),
        # one folder too much or too little
        (("images/{}",), ("images/ alone", "root/images")),
        (("images/train/{}", "images/test/{}"), ("images/ alone", "root/images")),
        (("images/{}", "labels/"), ("images/ alone", "root/images")),
        (("train/{}",), ("train/ alone", "root/train")),
        (("train/{}", "test/{}", "extra/{}"), ("extra/ beside them", "put the images")),
        (("train/{}", "test/{}", "samples"), ("samples/ beside them", "leave nothing else")),
        (("train/{}", "test/{}", "labels/"), ("labels/ beside them", "leave nothing else")),
        # splits without classes, and parts that are absent or there twice
        (("train", "test"), ("no class folders in test/, train/", "Sort the images")),
        (("train/{}", "test"), ("train/, and none in test/", "Sort the images")),
        (("train", "test/{}"), ("test/, and none in train/", "Sort the images")),
        (("train/{}", "val/{}", "test/"), ("none in test/", "remove these folders")),
        (("Train/{}", "valid/{}"), ("no test/", "rename valid/ to test/", "out of Train/")),
        (("train/{}", "Train/{}"), ("Train/, train/", "Keep one")),
        (("train/{}", "val/{}", "valid/{}", "test/{}"), ("two are the same part", "Keep one")),
        (("train/{}", "query/{}"), ("query/, train/", "query/ and gallery/")),
        (("train/{}", "test/{}", "gallery/{}"), ("gallery/, test/, train/", "test/ alone")),
        # too few classes
        (("train/{}", "test/a"), ("root/test is 1", "at least 2", "Add class folders")),
        (("train/{}", "test/x", "test/y/"), ("without an image: test/y", "Add images")),
        (("a/", "b/"), ("no image in its class folders: a, b", "Add images")),
    ],
    ids=str,
)
def test_what_is_unclear_is_refused_with_its_remedies(
    folders: tuple[str, ...], fragments: tuple[str, ...], tmp_path: Path
) -> None:
    message = refusal(tmp_path / "root", *folders)
    for fragment in fragments:
        assert fragment in message


@pytest.mark.parametrize(
    ("folders", "images"),
    [
        (("{}/images",), 6),  # one folder in each class is none of several splits
        (("{}/2020/may",), 6),
        (("{}", "a/more", "a/and/more"), 10),  # some images lie beside the folders
        (("{}", "train", "bus"), 10),  # names of vehicles
        (("{}", "train", "test"), 10),
    ],
    ids=str,
)
def test_folders_that_are_classes_stay_classes(
    folders: tuple[str, ...], images: int, tmp_path: Path
) -> None:
    rows = read(tmp_path / "root", *folders)
    assert rows.official is None and len(rows.labels) == images and {*CLASSES} <= {*rows.classes}


def test_a_validation_folder_may_have_one_class(tmp_path: Path) -> None:
    """The plan warns of it."""
    dataset = read(tmp_path / "root", "train/{}", "val/v", "test/{}")
    assert {p: c.classes for p, c in count_parts(dataset).items()} == {
        "train": 3,
        "val": 1,
        "test": 3,
    }


def test_classes_of_a_division_may_hold_a_folder_each(tmp_path: Path) -> None:
    rows = read(tmp_path / "root", "train/{}/images", "test/t{}/images")
    assert {name: str(count) for name, count in count_parts(rows).items()} == {
        "train": "6 images of 3 classes",
        "test": "6 images of 3 classes",
    }


@pytest.mark.parametrize(
    ("names", "digest"),
    [
        (
            ("a/1.jpg", "a/2.PNG", "b/3.tif", "b/4.webp", "b/notes.txt", "b/.x.jpg"),
            "4d98b2a0a593d50f635a5bd6d0a9c685a9251993c5a35d2739d4ce691ed87fde",
        ),
        (
            ("a/1.jpg", "a/more/2.PNG", "b/one/3.tif", "b/one/4.webp"),
            "d037483712633a8a2acba1e043250f26f04cf80838f7e2d794aa173f594c6e4a",
        ),
        (
            tuple(
                f"{part}/{part}{c}/{n}.jpg"
                for part in ("train", "val", "test")
                for c in (1, 2)
                for n in (1, 2)
            ),
            "e6c32a5fb46fb10b1138ff081922bc406ac3da5e8399ae2f45355e4b0057e0fe",
        ),
    ],
    ids=["classes", "deeper", "parts"],
)
def test_folders_that_were_read_before_keep_their_identity(
    names: tuple[str, ...], digest: str, tmp_path: Path
) -> None:
    """The digests were computed before other endings and names of parts were read."""
    for name in names:
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_bytes(name.encode())
    config = DataConfig(name="folder", root=str(tmp_path / "root"))
    assert DATASETS["folder"].fingerprint(config, tmp_path / "cache") == digest
