"""All faults of a data set come in one answer, and a plan looks for them no longer than it may."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.data import trees
from trainables.config.images import DataConfig
from trainables.data import fileset, survey
from trainables.data.dataset import DATASETS, fingerprint, load_dataset
from trainables.words.errors import ConfigError

FOLDER = DATASETS["folder"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return trees.class_folders(tmp_path / "own", classes=8, each=5)


def damage(path: Path, kind: str) -> None:
    whole = path.read_bytes()
    kinds = {"empty": b"", "cut": whole[: len(whole) // 2], "text": b"<html>not found</html>"}
    path.write_bytes(kinds[kind])


def config(root: Path, **options: object) -> DataConfig:
    return DataConfig(name="folder", root=str(root), image_size=16, **options)


def check(root: Path) -> str:
    given, cache = config(root), root.parent / "cache"
    return FOLDER.check_images(given, cache, fingerprint(given, cache))


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


WAYS: dict[str, Callable[[Path], object]] = {
    "plan": check,
    "pixels": lambda root: load_dataset(config(root, store="pixels"), root.parent / "cache"),
    "encoded": lambda root: load_dataset(config(root, store="encoded"), root.parent / "cache"),
}


@pytest.mark.parametrize("way", WAYS)
def test_all_damaged_images_and_single_classes_are_in_one_error(way: str, root: Path) -> None:
    broken = {"class00/3.png": "cut", "class02/0.png": "empty", "class07/4.png": "text"}
    for name, kind in broken.items():
        damage(root / name, kind)
    for image in sorted((root / "class05").iterdir())[1:]:
        image.unlink()
    message = refusal(lambda: WAYS[way](root))
    assert f"3 of 36 images cannot be read ({', '.join(broken)})" in message
    assert "a single image: class05" in message and "Replace or remove" in message
    for name in broken:
        (root / name).unlink()
    WAYS[way](root)  # classes of one image are no error alone


@pytest.mark.parametrize("way", WAYS)
def test_a_single_damaged_image_is_named_alone(way: str, root: Path) -> None:
    damage(root / "class04" / "1.png", "cut")
    message = refusal(lambda: WAYS[way](root))
    assert message.startswith(f"{root / 'class04' / '1.png'}: the image cannot be read (")


@pytest.mark.parametrize("way", WAYS)
def test_empty_classes_come_with_all_other_faults(way: str, root: Path) -> None:
    for name in ("class00/3.png", "class01/2.png"):
        damage(root / name, "cut")
    for name in ("none", "texts"):
        (root / name).mkdir()
    (root / "texts" / "1.txt").write_text("x")
    message = refusal(lambda: WAYS[way](root))
    assert "2 of 40 images cannot be read (class00/3.png, class01/2.png)" in message
    assert "without an image: none, texts. Add images" in message


def test_a_long_list_is_cut_with_the_number_of_the_others(root: Path) -> None:
    for image in root.glob("*/*.png"):
        damage(image, "cut")
    message = refusal(lambda: check(root))
    assert "40 of 40 images cannot be read (class00/0.png, " in message
    shown = message.count(".png") - message.count("class00/0.png: ")  # the first one's reason
    assert f" and {40 - shown} more)" in message


def test_images_that_a_plan_has_decoded_are_known_until_they_change(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    decode = survey.decode_with_values

    def note(picture: survey.ImageSource, *options: Any) -> object:
        decoded.append(picture.path.name)
        return decode(picture, *options)

    monkeypatch.setattr(survey, "decode_with_values", note)
    assert check(root) == check(root) == "" and len(decoded) == 40
    damage(root / "class03" / "2.png", "cut")
    for _ in range(2):  # a fault is not kept
        assert "class03/2.png: the image" in refusal(lambda: check(root))
    assert len(decoded) == 120


def test_images_that_a_run_has_decoded_need_no_check(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_dataset(config(root), root.parent / "cache")
    monkeypatch.setattr(survey, "decode_with_values", lambda *_: pytest.fail("was decoded"))
    assert check(root) == ""


def test_a_plan_does_not_decode_large_data_and_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(root / "class03" / "2.png", "cut")
    monkeypatch.setattr(fileset, "MOST_BYTES", 2**14)
    note = check(root)
    assert (
        f"{root}: the plan did not decode the 40 images" in note and "`ablate data check`" in note
    )
    (root / "none").mkdir()
    message = refusal(lambda: check(root))
    assert "cannot be read" not in message
    assert "without an image: none" in message


def test_queries_of_one_image_are_no_fault(tmp_path: Path) -> None:
    root = trees.manifest_csv(tmp_path / "table")
    for name in ("0/1.jpg", "7/2.jpg"):
        damage(root / "pictures" / name, "cut")
    given = DataConfig(name="manifest", root=str(root), image_size=16)
    message = refusal(lambda: load_dataset(given, tmp_path / "cache"))
    assert "2 of 48 images cannot be read" in message and "single" not in message
