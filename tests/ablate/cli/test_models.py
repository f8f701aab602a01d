"""`ablate embed` and `ablate neighbours` on folders of pictures, good and bad."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ablate.cli.main import main
from tests.ablate.command import ablate
from tests.trainables.core import exported
from trainables import load
from trainables.core import pictures

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported.write(tmp_path_factory.mktemp("model") / "best.safetensors")


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """Three classes of four pictures of unlike sizes; those of a class are nearly the same."""
    draw, root = np.random.default_rng(0), tmp_path / "birds"
    for name in ("ant", "bee & <b>", "çat"):
        (root / name).mkdir(parents=True)
        base = draw.integers(0, 255, (4, 4, 3)).repeat(20, 0).repeat(25, 1)
        for number in range(4):
            noisy = (base + draw.normal(0, 2, base.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(noisy).resize((90 + number, 70)).save(root / name / f"{number}.png")
    return root


def embed(model: Path, folder: Path, to: Path, *more: str) -> int:
    return main(["embed", str(model), str(folder), "--to", str(to), "--device", "cpu", *more])


def test_a_folder_is_embedded_as_the_model_does(
    model: Path, birds: Path, tmp_path: Path, capsys: Captured
) -> None:
    """In batches, whatever their size, what `model.embed` gives of the opened files."""
    assert embed(model, birds, tmp_path / "a.npz") == 0
    assert "embeddings of 12 pictures" in capsys.readouterr().out
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        found, paths, about = (
            file["embeddings"],
            list(file["paths"]),
            json.loads(str(file["about"])),
        )
    files = sorted(birds.rglob("*.png"), key=lambda path: path.parts)
    assert paths == [path.relative_to(birds).as_posix() for path in files]
    opened = [Image.open(path) for path in files]
    loaded = load(model, "cpu")
    wanted = loaded.embed(opened).numpy()
    assert np.allclose(loaded.embed_folder(birds, batch_size=5).embeddings, wanted, atol=1e-5)
    assert found.dtype == np.float32 and np.allclose(found, wanted, atol=1e-5)
    assert about["compared_by"] == "cosine" and about["image_size"] == 32
    assert embed(model.parent, birds, tmp_path / "b.npz") == 0


def test_large_pictures_are_embedded_in_small_batches(
    model: Path, birds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "BATCH_BYTES", 1)
    loaded, sizes = load(model, "cpu"), list[int]()
    embedded = loaded.network.embed
    monkeypatch.setattr(
        loaded.network, "embed", lambda batch: sizes.append(len(batch)) or embedded(batch)
    )
    assert len(loaded.embed_folder(birds).embeddings) == sum(sizes) == 12
    assert sizes == [1] * 12


@pytest.mark.slow
def test_a_process_of_its_own_says_its_line_and_ends(model: Path, birds: Path) -> None:
    """Libraries that are asked for networks count at the end what is still there."""
    done = ablate(birds.parent, "embed", str(model), "birds")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert done.stdout == "embeddings.npz has the embeddings of 12 pictures, 16 numbers each\n"
    assert (birds.parent / "embeddings.npz").is_file()


def test_damaged_pictures_are_named_and_left_out(
    model: Path, birds: Path, tmp_path: Path, capsys: Captured
) -> None:
    bad = birds / "ant" / "1.png"
    bad.write_bytes(bad.read_bytes()[:200])
    (birds / "ant" / "no.jpg").write_text("text")
    assert embed(model, birds, tmp_path / "a.npz") == 1
    said = capsys.readouterr()
    assert "left out ant/1.png: the image cannot be read" in said.err
    assert "left out ant/no.jpg: " in said.err and "2 pictures could not be read" in said.err
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert len(file["paths"]) == len(file["embeddings"]) == 11
        assert "ant/1.png" not in file["paths"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["{model}", "{birds}", "--to", "a.pkl"], "--to: a.pkl is not the name of an .npz file"),
        (["{model}", "{birds}", "--to", "{model}"], "--to: "),
        (["{model}", "{birds}", "--to", "there.npz"], "exists already. Name a new file"),
        (["{model}", "nowhere"], "FOLDER: The folder nowhere cannot be read (No such file"),
        (["{model}", "empty"], "FOLDER: empty has no picture"),
        (["{birds}", "{birds}"], "This is no best.safetensors of a trial (No such file"),
    ],
)
def test_bad_input_is_one_line(
    model: Path, birds: Path, words: list[str], line: str, capsys: Captured
) -> None:
    folder = birds.parent
    (folder / "there.npz").touch()
    (folder / "empty").mkdir()
    with contextlib.chdir(folder):
        code = main(["embed", *(word.format(model=model, birds=birds) for word in words)])
    said = capsys.readouterr()
    assert code == 2 and line in said.err and said.err.count("\n") == 1 and not said.out
    assert sorted(path.name for path in folder.iterdir()) == ["birds", "empty", "there.npz"]


def test_a_gallery_of_class_folders(
    model: Path, birds: Path, tmp_path: Path, capsys: Captured
) -> None:
    to = tmp_path / "shown"
    words = ["neighbours", str(model), str(birds), "--to", str(to), "--nearest", "3"]
    assert main([*words, "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "12 of 12 pictures, each with its nearest neighbours" in said
    assert "12 of these 12 have a nearest neighbour of the same class" in said
    assert sorted(path.name for path in to.iterdir()) == ["index.html", "thumbs"]
    text = (to / "index.html").read_text()
    assert text.count('<div class="row">') == 12 and "<b>" in text and "bee & <b>" not in text
    assert text.count('class="hit"') == 36 and 'class="miss"' not in text
    assert "http" not in text and "<script" not in text
    sources = re.findall(r'src="([^"]+)"', text)
    assert sources and all((to / source).is_file() for source in sources)
    embeddings = load(model, "cpu").embed(
        [Image.open(path) for path in sorted(birds.rglob("*.png"), key=lambda path: path.parts)]
    )
    scores = torch.nn.functional.normalize(embeddings) @ torch.nn.functional.normalize(embeddings).T
    nearest = scores.fill_diagonal_(-2)[0].max()
    assert f"<br>{nearest:.3f}" in text
    assert main(words) == 2 and "Name a new folder" in capsys.readouterr().err
