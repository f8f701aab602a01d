"""What an exported model gives, and what is said where it cannot be built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.trainables.core import exported
from trainables import load
from trainables.errors import ConfigError

PICTURES = np.random.default_rng(0).integers(0, 256, (3, 40, 40, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported.write(tmp_path_factory.mktemp("model") / "best.safetensors")


def test_embeddings_may_be_trained_on(file: Path) -> None:
    """A linear classifier of them, say: of tensors of inference mode autograd takes none."""
    model = load(file, "cpu")
    embeddings = model.embed(PICTURES)
    assert not embeddings.is_inference() and not embeddings.requires_grad
    head = torch.nn.Linear(16, 2)
    head(embeddings).sum().backward()
    assert head.weight.grad is not None and head.weight.grad.isfinite().all()
    scores = model.score(embeddings, embeddings)
    assert not scores.is_inference() and scores.shape == (3, 3)


@pytest.mark.parametrize("part", ["loss", "method", "data"])
def test_a_plug_in_that_is_absent_is_one_line(file: Path, tmp_path: Path, part: str) -> None:
    other = tmp_path / "best.safetensors"
    other.write_bytes(file.read_bytes())
    exported.renamed(other, part, "theirs")
    with pytest.raises(ConfigError, match=f"the {part} 'theirs' .* is not here") as caught:
        load(other)
    assert "\n" not in str(caught.value) and caught.value.path == str(other)


def test_a_folder_is_no_export(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no export, best\.safetensors"):
        load(tmp_path)


def test_a_folder_of_pictures_is_embedded(file: Path, tmp_path: Path) -> None:
    """In the order of their paths, as the opened pictures are; a damaged one is named."""
    for number, pixels in enumerate(PICTURES):
        (tmp_path / f"class {2 - number}").mkdir()
        Image.fromarray(pixels).save(tmp_path / f"class {2 - number}" / "a.png")
    model = load(file, "cpu")
    wanted = model.embed([Image.fromarray(pixels) for pixels in PICTURES[::-1]])
    assert torch.allclose(model.embed(tmp_path, batch_size=2), wanted, atol=1e-5)
    assert torch.allclose(model.embed(str(tmp_path)), wanted, atol=1e-5)
    (tmp_path / "class 1" / "b.png").write_bytes(b"none")
    with pytest.raises(ConfigError, match=r"class 1/b\.png"):
        model.embed(tmp_path)
    with pytest.raises(ConfigError, match="no picture"):
        (tmp_path / "empty").mkdir()
        model.embed(tmp_path / "empty")
