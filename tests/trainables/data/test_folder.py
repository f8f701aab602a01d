"""Folders of class folders: content decides, bad input is one line that names the file."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image, ImageFile

from tests.trainables.data import trees
from tests.trainables.data.trees import noise
from trainables.config.images import DataConfig
from trainables.data.dataset import fingerprint, load_dataset
from trainables.data.decode import ImageSource, decode_picture
from trainables.words.errors import ConfigError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "birds"
    sizes = [(40, 30), (30, 50), (33, 33), (21, 60)]
    for c in range(4):
        for i, size in enumerate(sizes):
            suffix = ("png", "jpg", "webp", "bmp")[i]
            noise(root / f"class {c}" / f"{i}.{suffix}", size, seed=10 * c + i)
    (root / "class 1" / "notes.txt").write_text("no image")
    (root / ".hidden").mkdir()
    return root


def config(root: Path | None, size: int = 28) -> DataConfig:
    return DataConfig(name="folder", root=None if root is None else str(root), image_size=size)


def fail(action: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_sizes_labels_and_pixels(root: Path, tmp_path: Path) -> None:
    data = load_dataset(config(root), tmp_path / "cache")
    assert data.classes == ("class 0", "class 1", "class 2", "class 3")
    assert data.labels.tolist() == [c for c in range(4) for _ in range(4)]
    assert (torch.minimum(data.images.heights, data.images.widths) == 32).all()
    # 28 px: short side 32. PNG and BMP come back as Pillow resizes them.
    wide = Image.open(root / "class 2" / "0.png").resize((42, 32), Image.Resampling.BILINEAR)
    assert np.array_equal(data.images[8].numpy(), np.asarray(wide))
    tall = Image.open(root / "class 3" / "3.bmp").resize((32, 91), Image.Resampling.BILINEAR)
    assert np.array_equal(data.images[15].numpy(), np.asarray(tall))
    assert data.images.frame == 28 / 32


def test_fingerprint_is_of_content(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = fingerprint(config(root), cache)
    moved = tmp_path / "elsewhere"
    root.rename(moved)
    for file in moved.rglob("*.*"):
        os.utime(file, (1, 1))
    assert fingerprint(config(moved), cache) == first
    assert fingerprint(config(moved, 64), tmp_path / "other cache") == first
    noise(moved / "class 0" / "0.png", (40, 30), seed=99)
    changed = fingerprint(config(moved), cache)
    assert changed != first
    (moved / "class 0" / "0.png").rename(moved / "class 0" / "00.png")
    assert fingerprint(config(moved), cache) not in (first, changed)


def test_folders_that_hold_no_classes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "bare").mkdir()
    noise(tmp_path / "one" / "only" / "a.png", (9, 9), 0)
    for root in (None, *(tmp_path / name for name in ("absent", "file", "bare", "one"))):
        message = fail(lambda root=root: fingerprint(config(root), tmp_path))
        assert message.startswith("data.root: ") and str(root or "--data-root") in message
    (tmp_path / "one" / "empty").mkdir()
    assert ": empty. Add images" in fail(lambda: fingerprint(config(tmp_path / "one"), tmp_path))


def test_folders_of_parts(tmp_path: Path) -> None:
    divided = tmp_path / "mine"
    for name in ("train/a", "train/b", "val/a", "val/b"):
        noise(divided / name / "1.png", (9, 9), 0)
    assert "rename val/ to test/" in fail(lambda: fingerprint(config(divided), tmp_path / "cache"))
    for name in ("train/a/1", "train/b/1", "val/1"):  # ImageNet's val/ as it is downloaded
        noise(tmp_path / "flat" / f"{name}.png", (9, 9), 0)
    message = fail(lambda: fingerprint(config(tmp_path / "flat"), tmp_path / "cache"))
    assert "none in val/. Sort the images there into class folders" in message


@pytest.mark.parametrize("action", [fingerprint, load_dataset])
def test_names_that_are_not_utf_8(action: Callable[..., object], root: Path) -> None:
    (root / "class 0" / "0.png").rename(os.fsdecode(bytes(root / "class 0") + b"/\xff.png"))
    message = fail(lambda: action(config(root), root / ".cache"))
    assert "'class 0/\\udcff.png' is not UTF-8. Rename the file." in message


def test_a_manifest_that_cannot_be_looked_up(tmp_path: Path) -> None:
    given = DataConfig(name="manifest", root=str(tmp_path / ("a" * 300 + ".csv")))
    message = fail(lambda: fingerprint(given, tmp_path / "cache"))
    assert message.startswith("data.root: ") and "cannot be read (File name too long)" in message


@pytest.mark.parametrize(
    ("name", "usual"),
    [case for case in trees.FIRST if case[0] not in ("folder", "manifest", "gldv2_public")],
)
def test_a_data_set_as_it_is_unpacked_is_named_with_its_loader(
    name: str, usual: str, tmp_path: Path
) -> None:
    root = trees.TREES[name][usual](tmp_path / usual)
    message = fail(lambda: fingerprint(config(root), tmp_path / "cache"))
    assert f"--dataset {name} --data-root {root})" in message
    remedy = DataConfig(name=name, root=str(root), allow_partial=True)
    assert fingerprint(remedy, tmp_path / "cache")


@pytest.mark.parametrize("mode", ["L", "CMYK", "I;16", "RGBA"])
def test_every_mode_becomes_upright_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    if mode == "I;16":
        Image.fromarray(np.full((20, 30), 204 * 256, np.uint16)).save(path)
    else:
        Image.new("RGB", (30, 20), (204, 204, 204)).convert(mode).save(path)
    pixels = decode_picture(ImageSource(path), 20)
    assert pixels.shape == (20, 30, 3) and pixels.dtype == np.uint8
    assert (abs(pixels.astype(int) - 204) <= 2).all()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGBA", (40, 20), (10, 20, 30, 0)).save(tmp_path / "turned.png", exif=exif)
    transparent = decode_picture(ImageSource(tmp_path / "turned.png"), 20)
    assert transparent.shape == (40, 20, 3) and (transparent == 255).all()


# --- hostile files --------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["EPS", "PDF", "truncated", "empty"])
def test_damage_and_other_formats_are_named_and_not_opened(
    damage: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EPS above all: Pillow hands it to Ghostscript, which runs what it says."""
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("was started"))
    file = root / "class 1" / "1.jpg"
    if damage.isupper():
        noise(file, (32, 32), seed=0, format=damage)
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2 * (damage == "truncated")])
    message = fail(lambda: load_dataset(config(root), tmp_path / "cache"))
    assert message.startswith(f"{file}: the image cannot be read (")


def test_bombs_are_refused_before_they_unfold(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = root / "class 2" / "0.png"
    Image.new("1", (14_000, 14_000)).save(bomb)
    load = ImageFile.ImageFile.load
    monkeypatch.setattr(
        ImageFile.ImageFile,
        "load",
        lambda self: pytest.fail("was decoded") if self.size == (14_000, 14_000) else load(self),
    )
    message = fail(lambda: load_dataset(config(root), tmp_path / "cache"))
    assert message.startswith(f"{bomb}: the image cannot be read (Image size (196000000 pixels)")


def test_what_is_no_image_is_passed_over_and_links_are_followed(root: Path, tmp_path: Path) -> None:
    before = fingerprint(config(root), tmp_path / "cache")
    os.mkfifo(root / "class 0" / "pipe.jpg")
    (root / "class 0" / "null.png").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(root / "class 0" / "s.png"))  # full paths may be too long
    for folder in ("__MACOSX/class 0", "class 0/.thumbs/a", ".git"):
        (root / folder).mkdir(parents=True)
        (root / folder / "0.jpg").write_bytes(b"no image")
    (root / "class 0" / "0.png").rename(tmp_path / "0.png")
    (root / "class 0" / "0.png").symlink_to(tmp_path / "0.png")
    linked = tmp_path / "linked"
    linked.mkdir()
    for folder in root.iterdir():
        (linked / folder.name).symlink_to(folder)
    for same in (root, linked):
        assert fingerprint(config(same), tmp_path / "cache") == before
    (root / "class 0" / "gone.png").symlink_to("nowhere")  # an image whose data is missing
    assert "1 of 17 images" in fail(lambda: fingerprint(config(root), tmp_path / "cache"))
