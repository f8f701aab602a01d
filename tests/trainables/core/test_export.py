"""Exported models: what they embed, and files that are damaged or that a stranger wrote."""

from __future__ import annotations

import copy
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image
from safetensors.torch import save

import trainables
from tests.trainables.core import exported
from trainables.backbones import backbone
from trainables.core import export, pictures
from trainables.core.trained_model import load_model
from trainables.data.decode import ImageSource, decode_picture
from trainables.words.errors import ConfigError

About, Tensors = dict[str, Any], dict[str, torch.Tensor]
GONE: Any = object()
PICTURES = np.random.default_rng(0).integers(0, 256, (3, 40, 40, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported.write(tmp_path_factory.mktemp("valid") / "best.safetensors")


def read_refusal(path: Path) -> str:
    """Return the sentence with which a file is refused."""
    with pytest.raises(ConfigError) as caught:
        load_model(path, "cpu")
    assert caught.value.path.startswith((str(path), "backbone", "data")), caught.value
    assert "\n" not in str(caught.value)
    return str(caught.value)


def change_entry(about: About, dotted_path: str, value: Any) -> About:
    changed = level = copy.deepcopy(about)
    *parents, last = dotted_path.split(".")
    for parent in parents:
        level = level[parent]
    if value is GONE:
        del level[last]
    else:
        level[last] = value
    return changed


# ------------------------------------------------------------------------------------- embeddings


def test_embeddings_may_be_trained_on(valid: Path) -> None:
    """Autograd refuses tensors of inference mode."""
    model = trainables.load(valid, "cpu")
    embeddings = model.embed(PICTURES)
    head = torch.nn.Linear(16, 2)
    head(embeddings).sum().backward()
    assert head.weight.grad is not None and head.weight.grad.isfinite().all()
    scores = model.score(embeddings, embeddings)
    assert not scores.is_inference() and scores.shape == (3, 3)


def test_a_folder_of_pictures_is_embedded(valid: Path, tmp_path: Path) -> None:
    for number, pixels in enumerate(PICTURES):
        (tmp_path / f"class {2 - number}").mkdir()
        Image.fromarray(pixels).save(tmp_path / f"class {2 - number}" / "a.png")
    model = trainables.load(valid, "cpu")
    expected = model.embed([Image.fromarray(pixels) for pixels in PICTURES[::-1]])
    assert torch.allclose(model.embed(str(tmp_path), batch_size=2), expected, atol=1e-5)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no picture"):
        model.embed(tmp_path / "empty")


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of three pictures."""
    root = tmp_path_factory.mktemp("birds")
    for number, pixels in enumerate(PICTURES):
        Image.fromarray(pixels).save(root / f"{number}.png")
    return root


def test_paths_of_pictures_are_embedded(valid: Path, birds: Path, tmp_path: Path) -> None:
    """In their order, as strings, paths or arrays of them, and one path alone."""
    model = trainables.load(valid, "cpu")
    expected = model.embed([Image.fromarray(pixels) for pixels in PICTURES])
    paths = [birds / "2.png", birds / "0.png", birds / "2.png"]
    for images in (paths, [str(paths[0]), *paths[1:]], tuple(paths), np.array([*map(str, paths)])):
        assert torch.allclose(model.embed(images, batch_size=2), expected[[2, 0, 2]], atol=1e-5)
    for image in (paths[0], str(paths[0]), [paths[0]]):
        assert torch.allclose(model.embed(image), expected[2:], atol=1e-5)
    folder = model.embed_folder(birds)
    assert [*map(str, folder.paths)] == ["0.png", "1.png", "2.png"] and not folder.unreadable
    assert torch.allclose(folder.embeddings, expected, atol=1e-5)


def test_unreadable_pictures_of_a_folder_are_left_out_and_counted(
    valid: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, pixels in enumerate(PICTURES):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    (tmp_path / "1.png").write_bytes((tmp_path / "1.png").read_bytes()[:90])
    model = trainables.load(valid, "cpu")
    expected = model.embed([Image.fromarray(PICTURES[number]) for number in (0, 2)])
    assert torch.allclose(model.embed(tmp_path), expected, atol=1e-5)
    assert "1.png: the image cannot be read" in caplog.text
    assert "1 of 3 pictures could not be read" in caplog.text
    folder = model.embed_folder(tmp_path)
    assert [*map(str, folder.paths)] == ["0.png", "2.png"] and len(folder.embeddings) == 2
    assert [*map(str, folder.unreadable)] == ["1.png"]
    # the rows of a list stand at the places of its paths
    paths = [tmp_path / f"{name}.png" for name in (0, 1, 2, "absent")]
    with pytest.raises(ConfigError, match=r"2 of 4 pictures .*1\.png.*absent\.png.*embed_folder"):
        model.embed(paths)
    with pytest.raises(ConfigError, match="There is no picture"):
        model.embed_folder(tmp_path, [])
    with pytest.raises(ConfigError, match=r"1\.png: the image cannot be read") as caught:
        model.embed(tmp_path / "1.png")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ([], "There is no image"),
        ((), "There is no image"),
        (np.zeros((0, 40, 40, 3), np.uint8), "There is no image"),
        ("", "is not a path"),
        ("nowhere", "nowhere: the image cannot be read"),
        (["nowhere/a.png", "b.png"], "none of 2 pictures can be read"),
        (
            ["a.png", Image.new("RGB", (9, 9))],
            "1 of the 2 images are paths, and the others are not",
        ),
        ([3], "uint8"),
        (None, "Images cannot be <class 'NoneType'>"),
        (3, "Images cannot be <class 'int'>"),
        ((image for image in PICTURES), "Images cannot be <class 'generator'>"),
        (torch.tensor(3, dtype=torch.uint8), "Images cannot be <class 'torch.Tensor'>"),
        (np.zeros((2, 0, 0, 3), np.uint8), r"\(2, 0, 0, 3\)"),
        (torch.zeros((2, 40, 0), dtype=torch.uint8), r"\(2, 40, 0\)"),
        ([os.devnull], "it is a folder, a pipe or a device"),
        ([os.curdir], "it is a folder, a pipe or a device"),
        (PICTURES[0], r"\(40, 40, 3\).*images\[None\]"),
        (PICTURES[0].transpose(2, 0, 1), r"\(3, 40, 40\).*transpose\(1, 2, 0\)"),
        (torch.from_numpy(PICTURES[0]).permute(2, 0, 1), r"\(3, 40, 40\)"),
        (PICTURES.transpose(0, 3, 1, 2), r"\(3, 3, 40, 40\)"),
        (np.zeros((40, 40, 4), np.uint8), r"\(40, 40, 4\)"),
        (PICTURES.astype(np.float32), "float32"),
    ],
    ids=lambda value: type(value).__name__,  # not its pixels
)
def test_what_cannot_be_embedded_is_one_sentence(valid: Path, images: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        trainables.load(valid, "cpu").embed(images)
    assert "\n" not in str(caught.value)


def test_grey_arrays_have_one_channel_or_none(valid: Path) -> None:
    model = trainables.load(valid, "cpu")
    greys = np.concatenate([PICTURES[..., 0]] * 2)
    expected = model.embed(greys)
    assert torch.allclose(model.embed(greys[..., None]), expected, atol=1e-5)
    assert torch.allclose(model.embed(greys[:3, ..., None]), expected[:3], atol=1e-5)


def test_a_picture_that_pillow_opened_and_cannot_load(valid: Path, birds: Path) -> None:
    content = (birds / "0.png").read_bytes()
    with Image.open(io.BytesIO(content[: len(content) // 2])) as opened:
        images = [Image.fromarray(PICTURES[0]), opened]
        with pytest.raises(ConfigError, match=r"images\[1\]: the image cannot be read"):
            trainables.load(valid, "cpu").embed(images)


@pytest.mark.parametrize("kind", ["folder", "paths", "opened"])
def test_deep_greys_are_read_as_in_the_trial(kind: str, valid: Path, tmp_path: Path) -> None:
    """A model that learned from 12 bits brings their range; others refuse such pictures."""
    data = {"name": "folder", "root": "/elsewhere", "image_size": 32, "grey_range": [0, 4095]}
    model = trainables.load(exported.write(tmp_path / "best.safetensors", data=data), "cpu")
    root = tmp_path / "greys"
    root.mkdir()
    shades = PICTURES[..., 0]
    for number, pixels in enumerate(shades):
        deep = np.rint(pixels * (4095 / 255)).astype(np.uint16)
        Image.fromarray(deep).save(root / f"{number}.png")
    paths = sorted(root.iterdir())
    images: Any = {"folder": root, "paths": paths, "opened": [*map(Image.open, paths)]}[kind]
    expected = model.embed([Image.fromarray(pixels) for pixels in shades])
    assert torch.allclose(model.embed(images), expected, atol=1e-5)
    with pytest.raises(ConfigError, match=r"3 of 3 .* 0 to 4095, .*grey_range: \[0, 4095\]"):
        trainables.load(valid, "cpu").embed(images)


@pytest.mark.parametrize("size", [(20, 30), (400, 90), (73, 73)])
@pytest.mark.parametrize("orientation", [1, 6])
def test_pictures_are_decoded_as_those_of_a_data_folder(
    tmp_path: Path, size: tuple[int, int], orientation: int
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    expected = decode_picture(ImageSource(tmp_path / "a.png"), 73)
    with Image.open(tmp_path / "a.png") as opened:
        images = pictures.convert_to_images(opened, 64 / 73, 73)
    shape = int(images.heights[0]), int(images.widths[0]), 3
    assert np.array_equal(images.flat.numpy().reshape(shape), expected)


def test_eps_drawings_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("was started"))
    Image.new("RGB", (40, 40)).save(tmp_path / "a.eps")
    with (
        Image.open(tmp_path / "a.eps") as drawing,
        pytest.raises(ConfigError, match=r"^images\[0\]: An EPS drawing"),
    ):
        pictures.convert_to_images(drawing, 1.0, None)


# ------------------------------------------------------------------------------- damaged, hostile


def parse_header(data: bytes) -> Any:
    """Return the header of a file of tensors with what an export says of itself; None: no JSON."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
        return header | {"__metadata__": json.loads(header["__metadata__"][export.KEY])}
    except (ValueError, KeyError, TypeError):
        return None


def test_every_flipped_byte_is_one_error(valid: Path, tmp_path: Path) -> None:
    data = valid.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    altered = tmp_path / "altered.safetensors"
    for position in (*range(0, start, 199), *range(start, len(data), 599_999), len(data) - 1):
        flipped = bytearray(data)
        flipped[position] ^= 0x01
        if position < start and parse_header(flipped) == parse_header(data):
            continue  # the last digit of 4/3, say: the same number, written otherwise
        altered.write_bytes(flipped)
        with pytest.raises(ConfigError, match=r"altered\.safetensors: "):
            load_model(altered, "cpu")
    altered.write_bytes(data[: start + 10])
    assert "This is no safetensors file" in read_refusal(altered)
    altered.write_bytes(data[:-1] + bytes([data[-1] ^ 0x80]))
    assert "is damaged: copy it again, or train the trial again" in read_refusal(altered)


def test_an_export_without_a_digest_is_refused(valid: Path, tmp_path: Path) -> None:
    about, weights = exported.said(valid)
    path = tmp_path / "old.safetensors"
    path.write_bytes(save(weights, metadata={export.KEY: json.dumps(about)}))
    assert "SHA-256 of the file's content differs" in read_refusal(path)


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        ("config", [GONE, None, 3, "x", [], {}]),
        ("config.data", [GONE, None, 3, "x", [], {}, {"name": []}]),
        ("config.loss.name", [GONE, None, 3, {}, "\x1b[31mnone", "of_a_plug_in"]),
        ("config.embedding.dim", [None, "x", -1, 10**9, 17]),
        ("config.backbone.name", ["none such", "hf-hub:a/b", "vit_gigantic_patch14_224"]),
        ("features", [GONE, None, "x", -1, 0, True, 1.5, 10**9, 2**70, 100]),
        ("classes", [GONE, None, 3, "abc", [], [3], ["\ud800"] * 3, ["one"], ["a"] * 10**5]),
        ("frame", [GONE, None, "x", 0, -1.0, 1.5, float("nan"), float("inf"), 1e9, 2**70]),
    ],
)
def test_what_a_file_says_of_itself_is_typed(
    valid: Path, tmp_path: Path, entry: str, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    about, tensors = exported.said(valid)
    monkeypatch.setattr(
        "trainables.core.trained_model.SPARE_BYTES", 2**20
    )  # these classes are more
    for value in values:
        changed = change_entry(about, entry, value)
        message = read_refusal(exported.sealed(tmp_path / "best.safetensors", changed, tensors))
        assert value != "of_a_plug_in" or "of this model is not installed. Install" in message


def test_a_small_file_builds_no_large_backbone(
    valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about, tensors = exported.said(valid)
    about = change_entry(about, "config.backbone.name", "vit_large_patch16_224")
    monkeypatch.setattr(backbone, "build_backbone", lambda *_, **__: pytest.fail("it was built"))
    message = read_refusal(exported.sealed(tmp_path / "a", about, tensors))
    assert "parameters of vit_large" in message


CHANGES: dict[str, Callable[[Tensors, str], Tensors]] = {
    "missing": lambda all_, name: {key: value for key, value in all_.items() if key != name},
    "foreign": lambda all_, _: {**all_, "ex\x1btra": torch.zeros(3)},
    "none": lambda _, __: {},
    "flat": lambda all_, name: {**all_, name: all_[name].reshape(-1)},
    "double": lambda all_, name: {**all_, name: all_[name].double()},
    "nan": lambda all_, name: {**all_, name: all_[name] * float("nan")},
}


@pytest.mark.parametrize("change", CHANGES)
def test_tensors_are_those_of_the_network(valid: Path, tmp_path: Path, change: str) -> None:
    about, tensors = exported.said(valid)
    altered = CHANGES[change](tensors, "method.loss.proxies")
    read_refusal(exported.sealed(tmp_path / "best.safetensors", about, altered))


def test_files_that_are_no_exports_are_refused_at_once(valid: Path, tmp_path: Path) -> None:
    about, _ = exported.said(valid)
    path = tmp_path / "best.safetensors"

    def write_raw(header: bytes, size: int = 0) -> None:
        with path.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + size)

    def build_header(text: str) -> bytes:
        return json.dumps({"__metadata__": {export.KEY: text}}).encode()

    os.mkfifo(tmp_path / "fifo")
    assert "a FIFO" in read_refusal(tmp_path / "fifo")
    assert "a device" in read_refusal(Path("/dev/zero"))
    assert "This is no best.safetensors of a trial" in read_refusal(tmp_path)
    for header in (b"", b"{", *map(build_header, ("[" * 10**5, "9" * 10**5, "3", "[]"))):
        write_raw(header)
        read_refusal(path)
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    read_refusal(path)
    tensor = {"dtype": "F32", "shape": [5 * 2**30], "data_offsets": [0, 20 * 2**30]}
    write_raw(
        json.dumps({"__metadata__": {export.KEY: json.dumps(about)}, "w": tensor}).encode(),
        20 * 2**30,
    )
    assert "larger than" in read_refusal(path)


def test_weights_of_a_frozen_backbone_are_a_regular_file(valid: Path, tmp_path: Path) -> None:
    about, tensors = exported.said(valid)
    os.mkfifo(tmp_path / "fifo")
    about["config"]["backbone"] |= {"mode": "frozen", "weights": str(tmp_path / "fifo")}
    about["config"]["backbone"]["weights_sha256"] = "0" * 64
    assert "a FIFO" in read_refusal(exported.sealed(tmp_path / "a", about, tensors))
