"""Weights files of models that timm lacks: how one is read, and how a wrong one is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor

from trainables.backbones import timm_models
from trainables.backbones.backbone import (
    build_frozen_backbone,
    check_fits,
    count_parameters,
    load_model,
)
from trainables.backbones.own_models import BACKBONES
from trainables.backbones.weights import describe_missing_weights, load_tensors_into
from trainables.config.network import BackboneConfig
from trainables.errors import ConfigError
from trainables.streams import seed_global_generator


def caffes(classifier: str = "last_linear") -> dict[str, Tensor]:
    """Return tensors laid out as in BN-Inception's usual file: norms of [1, C], a classifier."""
    with seed_global_generator(0, "file"):
        own = BACKBONES["bn_inception"]().state_dict()
        tensors = {
            name: torch.rand_like(value)[None] if "_bn." in name else value
            for name, value in own.items()
            if not name.endswith("num_batches_tracked")
        }
    tensors[f"{classifier}.weight"] = torch.zeros(1000, 1024)
    tensors[f"{classifier}.bias"] = torch.zeros(1000)
    return tensors


@pytest.mark.parametrize("classifier", ["last_linear", "fc"])
def test_the_usual_file_loads(tmp_path: Path, classifier: str) -> None:
    path, tensors = tmp_path / "file.pth", caffes(classifier)
    torch.save(
        tensors,
        path,
        pickle_protocol=2,
        _use_new_zipfile_serialization=False,
    )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    config = BackboneConfig(name="bn_inception", weights=str(path), weights_sha256=digest)
    backbone = build_frozen_backbone(config, 64)
    for name, value in backbone.model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(value, tensors[name].reshape(value.shape)), name
    # A pixel is 255 x − mean of its own channel: blue 104, green 117, red 128.
    assert backbone.pixels.channels == "bgr"
    assert [255 * value for value in backbone.mean] == pytest.approx([128, 117, 104])
    assert [255 * value for value in backbone.std] == pytest.approx([1, 1, 1])


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
    assert "bn_inception-52deb4733.pth" in said and "\n" not in said
    assert torch.equal(torch.get_rng_state(), state)
    check_fits(config.model_copy(update={"weights": str(tmp_path / "absent.pth")}), 64)


@pytest.mark.parametrize("weights", ["a" * 300, "/" + "a" * 300])
def test_a_path_that_cannot_be_looked_up_counts_as_missing(weights: str) -> None:
    config = BackboneConfig(name="bn_inception", weights=weights, weights_sha256="0" * 64)
    assert describe_missing_weights(config) == weights
    if weights.startswith("/"):
        check_fits(config, 64)
    else:
        with pytest.raises(ConfigError, match=r"there are no 'aaa.* weights of bn_inception"):
            check_fits(config, 64)


@pytest.mark.parametrize("error", [RuntimeError, OSError, ImportError])
def test_a_timm_that_cannot_be_imported(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise error("operator torchvision::nms does not exist")

    monkeypatch.setattr(timm_models, "import_module", fail)
    config = BackboneConfig(name="test_resnet", weights="none")
    message = (
        r"timm cannot be imported \(operator torchvision::nms .*\). Reinstall timm, torch and "
    )
    for action in (lambda: load_model(config, 64), lambda: count_parameters(config, 64)):
        with pytest.raises(ConfigError, match=message):
            action()


def test_a_tensor_of_another_shape_is_named() -> None:
    model = BACKBONES["bn_inception"]
    tensors = model.convert(caffes() | {"conv2_3x3.weight": torch.zeros(192, 64, 5, 5)})
    with pytest.raises(ConfigError, match=r"conv2_3x3.weight \[192, 64, 5, 5\], not \[192, 64, 3"):
        load_tensors_into(model(), tensors, model.CLASSIFIER, "a file", "bn_inception")
