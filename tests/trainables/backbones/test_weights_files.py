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
from trainables.backbones.weights import (
    compute_weights_identity,
    describe_missing_weights,
    load_tensors_into,
)
from trainables.config.network import BackboneConfig
from trainables.core.identity import compute_config_hash, dump_identity
from trainables.streams import seed_global_generator
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError


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


# --- checkpoints of other programs ----------------------------------------------------------------

TINY = "test_resnet"


@pytest.fixture(scope="module")
def trained() -> dict[str, Tensor]:
    """Return the tensors of a tiny network, whose names wrappers change."""
    with seed_global_generator(2, "file"):
        tensors: dict[str, Tensor] = timm.create_model(TINY, pretrained=False).state_dict()
    return tensors


def zero(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.zeros_like(value) for name, value in tensors.items()}


def rename(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": value for name, value in tensors.items()}


def load_saved(content: object, folder: Path, key: str | None = None) -> dict[str, Tensor]:
    """Save `content` as a checkpoint, and return the tensors of the network that reads it."""
    path = folder / "checkpoint.pth"
    torch.save(content, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    config = BackboneConfig(name=TINY, weights=str(path), weights_sha256=digest, weights_key=key)
    return load_model(config, 64)[0].state_dict()


def equals(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, expected[name]) for name, value in actual.items())


@pytest.mark.parametrize(
    "prefix",
    ["module.", "model.", "_orig_mod.", "backbone.", "module.backbone.", "_orig_mod.module.net.0."],
)
def test_one_prefix_of_all_names_is_removed(
    trained: dict[str, Tensor], prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    further = {"queue": torch.zeros(3), "head.weight": torch.zeros(2)}
    for content in (rename(prefix, trained), {"model": rename(prefix, trained) | further}):
        caplog.clear()
        assert equals(load_saved(content, tmp_path), trained)
        assert repr(prefix) in caplog.text and "checkpoint.pth" in caplog.text
    assert "(2)" in caplog.text, "how many other tensors are left out"
    caplog.clear()
    load_saved(trained, tmp_path)
    assert not caplog.records


@pytest.mark.parametrize(
    ("network", "copy"),
    [("module.encoder_q.", "module.encoder_k."), ("base_encoder.", "momentum_encoder.")],
)
def test_the_momentum_copy_is_read_on_request(
    trained: dict[str, Tensor], network: str, copy: str, tmp_path: Path
) -> None:
    tensors = rename(copy, zero(trained)) | rename(network, trained)
    content = {"epoch": 200, "state_dict": tensors | {"module.queue": torch.zeros(4, 5)}}
    assert equals(load_saved(content, tmp_path), trained)
    key = copy.rstrip(".").rpartition(".")[2]
    assert equals(load_saved(content, tmp_path, key), zero(trained))


@pytest.mark.parametrize("names", [("student", "teacher"), ("online", "target"), ("a.b", "a.c")])
@pytest.mark.parametrize("kind", ["keys", "prefixes"])
def test_of_several_networks_one_must_be_chosen(
    trained: dict[str, Tensor], names: tuple[str, str], kind: str, tmp_path: Path
) -> None:
    networks = dict(zip(names, (trained, zero(trained)), strict=True))
    content: dict[str, object] = {
        name if kind == "keys" else f"{name}.{tensor}": value
        for name, tensors in networks.items()
        for tensor, value in ({"": tensors} if kind == "keys" else tensors).items()
    }
    with pytest.raises(ConfigError) as caught:
        load_saved(content, tmp_path)
    assert all(name in str(caught.value) for name in names)
    assert "backbone.weights_key" in str(caught.value) and "\n" not in str(caught.value)
    for name, tensors in networks.items():
        assert equals(load_saved(content, tmp_path, name), tensors)


@pytest.mark.parametrize("key", ["model_ema", "state_dict_ema", "teacher", "ema"])
def test_an_average_is_read_on_request(
    trained: dict[str, Tensor], key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    average = zero(trained)
    nested = {"state_dict": rename("module.", average)}
    for usual, inner in (("state_dict", average), ("model", nested)):
        content = {usual: trained, key: inner, "optimizer": {"state": {0: {"step": 1}}}}
        caplog.clear()
        assert equals(load_saved(content, tmp_path), trained)
        assert key in caplog.text
        assert equals(load_saved(content, tmp_path, key), average)
    # without the usual tensors the error names the key
    with pytest.raises(ConfigError, match=rf"{key}.*weights_key"):
        load_saved({key: average, "epoch": 3}, tmp_path)
    assert equals(load_saved({"model": {key: average}}, tmp_path, key), average)


def test_a_key_that_the_file_lacks_or_that_has_no_effect(
    trained: dict[str, Tensor], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"'emma'\. Choose from ema\."):
        load_saved({"model": trained, "ema": trained}, tmp_path, "emma")
    with pytest.raises(ConfigError, match=r"'ema'\. Leave out backbone\.weights_key"):
        load_saved(trained, tmp_path, "ema")
    config = BackboneConfig(name=TINY, weights="timm", weights_key="ema")
    with pytest.raises(ConfigError, match="has no effect with weights: timm"):
        check_fits(config, 64)


def test_the_key_is_part_of_ids_only_where_it_is_given() -> None:
    file = {"name": TINY, "weights": "a.pth", "weights_sha256": "1" * 64}
    plain, keyed = (
        TrialConfig(backbone=BackboneConfig(**file, weights_key=key)) for key in (None, "ema")
    )
    assert "weights_key" not in dump_identity(plain)["backbone"]
    assert compute_config_hash(plain, "") != compute_config_hash(keyed, "")
    assert compute_weights_identity(plain.backbone) == "1" * 64
    assert compute_weights_identity(keyed.backbone) != "1" * 64


def test_a_prefix_of_another_models_layer_is_none(tmp_path: Path) -> None:
    """Names inside of a layer, as `layer1.0.conv1`, are those of other networks' first layers."""
    tensors = {"net.bn1.weight": torch.zeros(3), "net.bn1.bias": torch.zeros(3)}
    with pytest.raises(ConfigError, match=r"2 are unknown \(net\.bn1\.bias, net\.bn1\.weight"):
        load_saved(tensors, tmp_path)
