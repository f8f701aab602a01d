"""Each ending of a still image that Pillow reads is read, and other files are counted."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.trainables.data.trees import noise
from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, load_dataset
from trainables.data.sets.folder import SUFFIXES
from trainables.words.errors import ConfigError

Image.init()
DRAWINGS_FILMS_AND_MEASUREMENTS = (
    *(".eps", ".ps", ".wmf", ".emf", ".pdf", ".mpg", ".mpeg", ".fli", ".flc"),
    *(".h5", ".hdf", ".grib", ".bufr", ".fit", ".fits", ".pcd", ".iim", ".palm", ".txt", ".csv"),
)
# endings of formats in which Pillow can save a picture of any size
SAVED = [
    ending
    for ending in SUFFIXES
    if Image.registered_extensions()[ending] in Image.SAVE and ending not in (".ico", ".icns")
]
MODES = {".xbm": "1", ".msp": "1", ".pbm": "1", ".pgm": "L", ".bw": "L", ".blp": "P"}


def settings(root: Path) -> DataConfig:
    return DataConfig(name="folder", root=str(root), image_size=16)


def save(path: Path, mode: str = "RGB") -> None:
    """White above, black below, in the format of the ending; `.pfm` has values from 0 to 1."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.repeat([[255], [0]], 16, 0).repeat(32, 1).astype(np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


def test_the_endings_are_those_of_still_images() -> None:
    common = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".bmp", ".dib", ".gif"}
    common |= {".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".ico", ".qoi", ".mpo"}
    common |= {".jp2", ".j2k", ".avif", ".pcx", ".sgi", ".psd"}
    assert common <= {*SUFFIXES}
    assert not {*SUFFIXES} & {*DRAWINGS_FILMS_AND_MEASUREMENTS}


@pytest.mark.parametrize("ending", [ending for ending in SAVED if ending != ".pfm"])
def test_an_ending_is_read_in_both_capitals(ending: str, tmp_path: Path) -> None:
    for name in ("a/1", "b/1"):
        save(tmp_path / "root" / f"{name}{ending}", MODES.get(ending, "RGB"))
    (tmp_path / "root" / "b" / f"1{ending}").rename(tmp_path / "root" / "b" / f"1{ending.upper()}")
    data = load_dataset(settings(tmp_path / "root"), tmp_path / "cache")
    for row in (0, 1):
        pixels = data.images[row].float()
        assert pixels[:6].mean() > 200 and pixels[-6:].mean() < 55


def test_icons_are_read(tmp_path: Path) -> None:
    for name in ("a/1.ico", "b/1.icns"):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True)
        Image.new("RGBA", (64, 64), (255, 0, 0, 255)).save(path)
    data = load_dataset(settings(tmp_path / "root"), tmp_path / "cache")
    assert [data.images[row][8, 8].tolist() for row in (0, 1)] == [[255, 0, 0]] * 2


def test_content_decides_and_tga_has_no_signature(tmp_path: Path) -> None:
    """The names lie; text and a cut picture are not taken for a TGA."""
    root = tmp_path / "root"
    for ending, format in ((".jpg", "PPM"), (".png", "TGA"), (".tga", "JPEG")):
        noise(root / "a" / f"1{ending}", (20, 20), 0, format=format)
    noise(root / "b" / "1.jpg", (20, 20), 0)
    assert len(load_dataset(settings(root), tmp_path / "cache").images) == 4
    whole = BytesIO()
    Image.new("RGB", (20, 20)).save(whole, "JPEG")
    for content in (b"hello\n", b"<html>\0\2</html>", bytes(999), whole.getvalue()[9:], b""):
        (root / "b" / "1.jpg").write_bytes(content)
        with pytest.raises(ConfigError, match=r"b/1\.jpg: the image cannot be read"):
            load_dataset(settings(root), tmp_path / "cache")


def make_strange_files(root: Path) -> None:
    for label in ("a", "b"):
        noise(root / label / "1.png", (20, 20), 0)
        for name in (
            "1.txt",
            "2.TXT",
            "1",
            "1.jpg.1",
            "1.heic",
            "notes.a long sentence",
            ".hidden",
        ):
            (root / label / name).write_bytes(b"x")


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda root: None, "4 .txt, 4 without ending, 2 .1, 2 .heic"),
        (
            lambda root: noise(root / "sheet.JPG", (9, 9), 0),
            "4 .txt, 4 without ending, 2 .1, 2 .heic, 1 .jpg beside the class folders",
        ),
        (
            lambda root: (root / "a" / "link").symlink_to(root / "b"),
            "4 .txt, 4 without ending, 2 .1, 2 .heic, 1 linked folders",
        ),
        (
            lambda root: (root / "README.md").write_text("x"),
            "4 .txt, 4 without ending, 2 .1, 2 .heic, 1 .md",
        ),
    ],
    ids=["in classes", "beside classes", "links", "in the root"],
)
def test_files_that_are_passed_over_are_counted_by_ending(
    change: Callable[[Path], object], note: str, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    make_strange_files(root)
    before = DATASETS["folder"].fingerprint(settings(root), tmp_path / "cache")
    change(root)
    rows = DATASETS["folder"].without_pixels(settings(root), tmp_path / "cache")
    assert rows is not None
    assert [text.rpartition(f"{root}: ")[2] for text in rows.notes] == [note]
    assert DATASETS["folder"].fingerprint(settings(root), tmp_path / "cache") == before


def test_files_are_counted_in_all_parts_and_in_none_if_there_are_none(tmp_path: Path) -> None:
    for part in ("train", "test"):
        make_strange_files(tmp_path / "root" / part)
        (tmp_path / "root" / part / "list.csv").write_text("x")
        noise(tmp_path / "clean" / part / "1.png", (9, 9), 0)
    (tmp_path / "root" / "all.csv").write_text("x")
    (tmp_path / "clean" / "test").rename(tmp_path / "clean" / "dog")
    counted, clean = (
        DATASETS["folder"].without_pixels(settings(tmp_path / name), tmp_path / "cache")
        for name in ("root", "clean")
    )
    assert counted is not None and "8 .txt" in counted.notes[0] and "3 .csv" in counted.notes[0]
    assert clean is not None and clean.notes == ()


def test_a_folder_whose_files_are_all_passed_over_says_so(tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / "root" / label).mkdir(parents=True)
        (tmp_path / "root" / label / "1.heic").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"no image in its class folders: a, b\..*: 2 \.heic"):
        DATASETS["folder"].fingerprint(settings(tmp_path / "root"), tmp_path / "cache")
