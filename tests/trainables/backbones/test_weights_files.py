"""Weights files of models that timm lacks: what is known, how one is checked and converted."""

from __future__ import annotations

import hashlib
import pickle
import re
import types
from pathlib import Path
from typing import Any, ClassVar

import pytest
import timm
import torch
from torch import Tensor

from ablate.cli.main import main
from trainables.backbones.backbone import check_fits, frozen_backbone
from trainables.backbones.of_papers import check_weights_file, describe_weights
from trainables.backbones.own_models import BACKBONES
from trainables.config.network import BackboneConfig
from trainables.errors import ConfigError
from trainables.streams import seeded


def caffes(*, prefix: str = "", classifier: str = "last_linear") -> dict[str, Tensor]:
    """Return tensors laid out as in BN-Inception's usual file: norms of [1, C], a classifier."""
    with seeded(0, "file"):
        own = BACKBONES["bn_inception"].build().state_dict()
        tensors = {
            prefix + name: torch.rand_like(value)[None] if "_bn." in name else value
            for name, value in own.items()
            if not name.endswith("num_batches_tracked")
        }
    tensors[f"{prefix}{classifier}.weight"] = torch.zeros(1000, 1024)
    tensors[f"{prefix}{classifier}.bias"] = torch.zeros(1000)
    return tensors


def of_python_2() -> Any:
    """Return a module that pickles text as Python 2 did, in which the usual file was made."""

    class Pickler(pickle._Pickler):
        dispatch: ClassVar[Any] = dict(pickle._Pickler.dispatch)

        def save_text(self, text: str) -> None:
            content = text.encode("ascii")
            self.write(pickle.SHORT_BINSTRING + bytes([len(content)]) + content)
            self.memoize(text)

        dispatch[str] = save_text

    module: Any = types.ModuleType("pickle")
    module.Pickler = Pickler
    module.dump = lambda value, file, protocol: Pickler(file, protocol).dump(value)
    return module


def test_what_is_said_of_the_usual_file_is_what_the_model_has() -> None:
    tensors = caffes()
    numbers = sum(value.numel() for value in tensors.values())
    assert f"{numbers:,} numbers of 32 bits in {len(tensors)} tensors" in describe_weights(
        "bn_inception"
    )
    for name in BACKBONES:
        known = BACKBONES[name].FILE
        said = describe_weights(name)
        assert known.file in said and known.digest in said
        assert f"channels: {BACKBONES[name].PIXELS.channels}" in said
    assert "blue, green, red" in describe_weights("bn_inception")
    # Each name that is written out in full is one of the model's.
    names = re.findall(r"(?:conv|inception)[0-9][a-z0-9_]*(?=[,;. ])", known.keys)
    assert all(any(own.startswith(each) for own in tensors) for each in names)


@pytest.mark.parametrize("classifier", ["last_linear", "fc"])
def test_the_usual_file_loads_as_python_2_wrote_it(tmp_path: Path, classifier: str) -> None:
    path, tensors = tmp_path / "file.pth", caffes(classifier=classifier)
    torch.save(
        tensors,
        path,
        pickle_module=of_python_2(),
        pickle_protocol=2,
        _use_new_zipfile_serialization=False,
    )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    said = check_weights_file("bn_inception", path)
    assert digest in said and "It has all tensors of bn_inception." in said
    assert "This is not bn_inception-52deb4733.pth" in said, "the made file has another digest"
    config = BackboneConfig(name="bn_inception", weights=str(path), weights_sha256=digest)
    backbone = frozen_backbone(config, 64)
    for name, value in backbone.model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(value, tensors[name].reshape(value.shape)), name
    # A pixel is 255 x − mean of its own channel: blue 104, green 117, red 128.
    assert backbone.bgr
    assert [255 * value for value in backbone.mean] == pytest.approx([128, 117, 104])
    assert [255 * value for value in backbone.std] == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("container", ["model_state_dict", "state_dict", None])
def test_a_checkpoint_of_training_is_converted(tmp_path: Path, container: str | None) -> None:
    path, target = tmp_path / "epoch_40.pth", tmp_path / "bn_inception.safetensors"
    tensors = caffes(prefix="model.") | {"model.embedding.weight": torch.zeros(512, 1024)}
    torch.save({container: tensors} if container else tensors, path)
    with pytest.raises(ConfigError, match="no weights file of bn_inception"):
        check_weights_file("bn_inception", path)
    said = check_weights_file("bn_inception", path, target)
    assert "embedding.weight" in said and "last_linear.weight" in said, "what is left out is named"
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    assert said.splitlines()[-1].endswith(f"weights: {target}, weights_sha256: {digest}}}")
    config = BackboneConfig(name="bn_inception", weights=str(target), weights_sha256=digest)
    found = frozen_backbone(config, 64).model.state_dict()
    for name, value in found.items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(value, tensors[f"model.{name}"].reshape(value.shape)), name
    with pytest.raises(ConfigError, match="--save"):
        check_weights_file("bn_inception", path, target)


def test_a_wrong_file_is_named_before_any_trial(tmp_path: Path) -> None:
    path = tmp_path / "resnet.pth"
    torch.save(timm.create_model("test_resnet", pretrained=False).state_dict(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    config = BackboneConfig(name="bn_inception", weights=str(path), weights_sha256=digest)
    state = torch.get_rng_state()
    with pytest.raises(ConfigError) as caught:
        check_fits(config, 64)
    said = str(caught.value)
    assert str(path) in said and "414" in said
    assert "conv1_7x7_s2.weight" in said, "what is missing"
    assert "bn1.bias" in said, "what is there instead"
    assert "`ablate backbones bn_inception`" in said and "\n" not in said
    assert torch.equal(torch.get_rng_state(), state)
    check_fits(config.model_copy(update={"weights": str(tmp_path / "absent.pth")}), 64)


def test_a_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file.pth"
    torch.save(caffes() | {"conv2_3x3.weight": torch.zeros(192, 64, 5, 5)}, path)
    with pytest.raises(ConfigError, match=r"conv2_3x3.weight \[192, 64, 5, 5\], not \[192, 64, 3"):
        check_weights_file("bn_inception", path)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backbones", "bn_inception"]) == 0
    assert "bn_inception-52deb4733.pth" in capsys.readouterr().out
    path = tmp_path / "file.pth"
    torch.save(caffes(), path)
    assert main(["backbones", "bn_inception", "--file", str(path)]) == 0
    assert hashlib.sha256(path.read_bytes()).hexdigest() in capsys.readouterr().out
    for wrong in (
        ["--file", str(path)],
        ["bn_inception", "--save", "x.safetensors"],
        ["resnet50"],
        ["bn_inception", "--file", str(tmp_path / "absent.pth")],
        ["googlenet", "--file", str(path)],
    ):
        assert main(["backbones", *wrong]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "expected" in line
