"""Plans, runs and `ablate data check` tell all faults of a folder at once, before any trial."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.cli.main import main
from tests.trainables.data import trees

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    return trees.class_folders(tmp_path / "birds", classes=12, each=4)


def write(folder: Path, **data: Any) -> str:
    trial = {
        "data": {"name": "folder", "root": str(folder), "image_size": 32, **data},
        "backbone": {"name": "mobilenetv3_small_050", "weights": "none"},
        "embedding": {"dim": 8},
        "training": {"epochs": 1, "batch_size": 8, "per_class": 1},
    }
    grid = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}, "evaluate": ["val", "test"]}
    content = {"name": "own", "seeds": 1, "trial": trial, "studies": {"rates": grid}}
    Path("spec.yaml").write_text(yaml.safe_dump(content))
    return "spec.yaml"


def call(capsys: Captured, *words: str) -> tuple[int, str, str]:
    code = main([*words])
    return code, *capsys.readouterr()


def spoil(birds: Path) -> tuple[str, ...]:
    """Damage two images, leave a class one image, and two classes none; return all their names."""
    for name in ("class01/2.png", "class08/0.png"):
        (birds / name).write_bytes((birds / name).read_bytes()[:70])
    for image in sorted((birds / "class11").iterdir())[1:]:
        image.unlink()
    (birds / "class05" / "readme.txt").write_text("x")
    for name in ("unfilled", "words"):
        (birds / name).mkdir()
    (birds / "words" / "1.txt").write_text("x")
    return ("class01/2.png", "class08/0.png", "class11", "unfilled", "words")


def test_plan_and_check_name_all_faults_at_once(birds: Path, capsys: Captured) -> None:
    names = spoil(birds)
    code, out, err = call(capsys, "run", write(birds), "--plan")
    assert code == 2 and not out and err.count("\n") == 1 and "spec.yaml line " in err
    assert all(name in err for name in names)
    code, out, err = call(capsys, "data", "check", str(birds))
    assert code == 2 and err.count("\n") == 1 and all(name in err for name in names)
    assert out.count("a bad image: ") == 2 and "45 images were read" in out and "2 are bad" in out
    # without empty classes, the faults are still together
    for name in ("unfilled", "words"):
        shutil.rmtree(birds / name)
    for words in (("run", "spec.yaml", "--plan"), ("run", "spec.yaml", "--device", "cpu")):
        code, _, err = call(capsys, *words)
        assert code == 2 and all(name in err for name in names[:3])
    assert not Path("runs", "trials").exists()
    code, out, err = call(capsys, "data", "check", str(birds))
    assert code == 1 and not err and "(class11)" in out
    # and when the images are replaced, the plan stands
    for name in names[:2]:
        shutil.copy(birds / "class00" / "0.png", birds / name)
    code, out, err = call(capsys, "run", "spec.yaml", "--plan")
    assert (
        code == 0 and not err and "rates: test: 1 of 6 classes have a single image (class11)" in out
    )


def test_check_shows_so_many_bad_images_and_counts_the_others(
    tmp_path: Path, capsys: Captured
) -> None:
    root = trees.class_folders(tmp_path / "many", classes=9, each=9)
    for image in root.glob("*/*.png"):
        image.write_bytes(image.read_bytes()[:70])
    code, out, _ = call(capsys, "data", "check", str(root))
    assert code == 1 and out.count("a bad image: ") == 50 and "and 31 more images are bad" in out


def test_plan_and_check_count_what_is_passed_over(birds: Path, capsys: Captured) -> None:
    code, out, _ = call(capsys, "run", write(birds), "--plan")
    assert code == 0 and "passed over" not in out
    for folder in birds.iterdir():
        for name in ("notes.txt", "noending", "20.jpg.1"):
            (folder / name).write_bytes(b"x")
    for words in (("run", "spec.yaml", "--plan"), ("data", "check", str(birds))):
        code, out, _ = call(capsys, *words)
        assert code == 0 and "over in" in out and "12 .1, 12 .txt, 12 without ending" in out


def test_columns_that_are_not_read_are_named(tmp_path: Path, capsys: Captured) -> None:
    rows = [{**row, "width": "3", "camera": "b"} for row in trees.manifest_rows()]
    root = trees.manifest_csv(tmp_path / "table", rows)
    code, out, _ = call(capsys, "data", "check", "manifest", "--data-root", str(root))
    assert code == 0 and "not read: width, camera" in out


def test_a_divided_folder_is_planned_as_its_folders_say(tmp_path: Path, capsys: Captured) -> None:
    root = trees.folder_of_parts(tmp_path / "parts", ("Train", "Valid", "TEST"))
    code, out, _ = call(capsys, "run", write(root), "--plan")
    assert code == 0 and "classes: 6 train, 6 validate, 6 test" in out
    root = trees.folder_of_parts(tmp_path / "unclear", ("seen", "unseen"))
    code, out, err = call(capsys, "run", write(root), "--plan")
    assert code == 2 and not out and err.count("\n") == 1
    assert "call them train, val and test" in err and "put the images of each directly" in err


def make_few(tmp_path: Path) -> dict[str, Any]:
    """Three classes, of which the papers' protocol tests one."""
    root = trees.class_folders(tmp_path / "few", classes=3)
    return {"folder": root, "split": {"protocol": "paper", "test": 0.3}}


def make_table(tmp_path: Path) -> dict[str, Any]:
    """A table whose test images are of one class."""
    rows = [
        {**row, "split": "test" if row["label"] == "thing 7" else "train", "role": ""}
        for row in trees.manifest_rows()
    ]
    return {"folder": trees.manifest_csv(tmp_path / "table", rows), "name": "manifest"}


def make_gallery(tmp_path: Path) -> dict[str, Any]:
    """Queries of six classes, whose gallery shows one of these."""
    rows = [
        row
        for row in trees.manifest_rows()
        if row["role"] != "gallery" or row["label"] == "thing 7"
    ]
    return {"folder": trees.manifest_csv(tmp_path / "gallery", rows), "name": "manifest"}


@pytest.mark.parametrize("make", [make_few, make_table, make_gallery])
def test_a_test_of_a_single_class_is_refused_by_plan_and_run(
    make: Callable[[Path], dict[str, Any]], tmp_path: Path, capsys: Captured
) -> None:
    made = make(tmp_path)
    path = write(made.pop("folder"), **made)
    if make is make_few:
        text = Path(path).read_text().replace("- val\n", "")
        Path(path).write_text(f"objective: test/map_at_r\n{text}")
    for words in (("--plan",), ("--device", "cpu")):
        code, out, err = call(capsys, "run", path, *words)
        assert code == 2 and err.count("\n") == 1 and not out
        assert "split test: the " in err and "are of a single class" in err
    assert not Path("runs", "trials").exists()


def test_evaluating_a_single_class_gives_no_row(tmp_path: Path, capsys: Captured) -> None:
    made = make_table(tmp_path)
    words = ("evaluate", "mobilenetv3_small_050=none", f"manifest={made['folder']}")
    code, out, err = call(capsys, *words, "--image-size", "32", "--device", "cpu")
    assert code == 1 and "100.00" not in out and "are of a single class" in err
