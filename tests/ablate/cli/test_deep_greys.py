"""Greys of more than 8 bits, and images of one colour, from the check to the evaluation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from ablate.cli.main import main
from tests.trainables.core import exported
from tests.trainables.data import trees

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def make_folder(root: Path, change: Callable[[np.ndarray], np.ndarray]) -> Path:
    """Write 12 classes of 4 grey pictures, whose values 0 … 255 `change` turns into others."""
    for label in range(12):
        for number in range(4):
            path = root / f"class{label:02d}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(change(trees.pixels(label, number)[..., 0])).save(path)
    return root


def to_twelve_bits(pixels: np.ndarray) -> np.ndarray:
    return np.rint(pixels * (4095 / 255)).astype(np.uint16)


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "deep", to_twelve_bits)


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


def test_plan_run_and_check_refuse_greys_that_would_be_black(deep: Path, capsys: Captured) -> None:
    for words in (("--plan",), ("--device", "cpu")):
        code, out, err = call(capsys, "run", write(deep), *words)
        assert code == 2 and err.count("\n") == 1, (words, out)
        assert "48 of 48 images" in err and "data.grey_range: [0, 4095]" in err
    assert not Path("runs", "trials").exists()
    code, out, _ = call(capsys, "data", "check", str(deep))
    assert code == 1 and "0 are bad" in out and "data.grey_range: [0, 4095]" in out
    code, out, _ = call(capsys, "data", "check", str(deep), "--grey-range", "0", "4095")
    assert code == 0 and "grey_range" not in out
    code, out, err = call(capsys, "run", write(deep, grey_range=[0, 4095]), "--plan")
    assert code == 0 and not err and "grey_range" not in out


def test_plan_and_check_warn_of_images_of_one_colour(tmp_path: Path, capsys: Captured) -> None:
    root = make_folder(tmp_path / "empty", lambda pixels: pixels)
    for name in ("class01/0.png", "class03/2.png", "class07/1.png"):
        Image.new("L", (20, 20), 3).save(root / name)
    code, out, _ = call(capsys, "run", write(root), "--plan")
    expected = "warning: 3 of 48 images have a single colour (class01/0.png, class03/2.png"
    assert code == 0 and expected in out
    code, out, _ = call(capsys, "run", "spec.yaml", "--plan")  # from the cache
    assert code == 0 and expected in out
    code, out, _ = call(capsys, "data", "check", str(root))
    assert code == 0 and expected in out


def test_embedding_and_evaluation_read_greys_as_the_trial_did(
    deep: Path, tmp_path: Path, capsys: Captured
) -> None:
    data = {"name": "folder", "root": "/elsewhere", "image_size": 32}
    small = {"backbone": {"name": "test_resnet", "weights": "none", "mode": "finetune"}}
    stated = {**data, "grey_range": [0, 4095]}
    keyed = exported.write(tmp_path / "deep.safetensors", data=stated, **small)
    plain = exported.write(tmp_path / "plain.safetensors", data=data, **small)
    same = make_folder(tmp_path / "same", lambda pixels: pixels)
    rows = []
    for model, root in ((keyed, deep), (plain, same)):
        code, out, err = call(capsys, "evaluate", str(model), f"folder={root}", "--csv")
        assert code == 0, err
        rows.append(out.splitlines()[1].split(",")[-6:])
    assert rows[0] == rows[1]
    embedded = []
    for number, (model, root) in enumerate(((keyed, deep), (plain, same))):
        code, _, err = call(capsys, "embed", str(model), str(root), "--to", f"{number}.npz")
        assert code == 0, err
        embedded.append(np.load(f"{number}.npz")["embeddings"])
    assert np.allclose(embedded[0], embedded[1], atol=1e-5)
    code, _, err = call(capsys, "neighbours", str(keyed), str(deep), "--to", "page")
    assert code == 0, err
    shades = [np.asarray(Image.open(path)).mean() for path in Path("page", "thumbs").iterdir()]
    assert len(shades) == 48 and min(shades) > 40, "thumbnails show what the model sees"
    # a model without a range refuses them, unless evaluation is given one
    code, _, err = call(capsys, "embed", str(plain), str(deep), "--to", "refused.npz")
    assert code == 2 and "grey_range: [0, 4095]" in err and not Path("refused.npz").exists()
    code, out, err = call(capsys, "evaluate", str(plain), f"folder={deep}", "--csv")
    assert code == 1 and "grey_range: [0, 4095]" in err
    given = ("--csv", "--grey-range", "0", "4095")
    code, out, _ = call(capsys, "evaluate", str(plain), f"folder={deep}", *given)
    assert code == 0 and out.splitlines()[1].split(",")[-6:] == rows[0]
    code, _, err = call(capsys, "evaluate", str(keyed), f"folder={deep}", *given)
    assert code == 2 and "Leave out --grey-range" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("deep", "--grey-range", "255", "0"), "the value of black and a larger one of white"),
        (("deep", "--grey-range", "0", "nan"), "the value of black and a larger one of white"),
        (("digits", "--grey-range", "0", "1"), "has no image files"),
    ],
)
def test_ranges_that_cannot_be(
    words: tuple[str, ...], expected: str, deep: Path, capsys: Captured
) -> None:
    code, _, err = call(capsys, "data", "check", *words)
    assert code == 2 and expected in err and err.count("\n") == 1
