"""Backbones: pooling, weights and their checks, frozen parts, one-line errors."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from trainables.backbones.backbone import build_backbone, check_fits, pool_tokens
from trainables.backbones.weights import (
    PACKAGED_SHA256,
    compute_weights_identity,
    locate_packaged_file,
)
from trainables.config.network import BackboneConfig
from trainables.streams import seed_global_generator
from trainables.words.errors import ConfigError

TINY = "test_resnet"  # timm's own model for tests, 0.5 M parameters
IMAGES = torch.linspace(-1, 1, 2 * 3 * 64 * 64).view(2, 3, 64, 64).sin()


def config(**changes: Any) -> BackboneConfig:
    return BackboneConfig.model_validate({"name": TINY, "weights": "none", **changes})


def said(**changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        build_backbone(config(**changes), 64)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_average_and_maximum_are_summed() -> None:
    with seed_global_generator(0, "a"):
        plain = build_backbone(config(pool="avg"), 64).eval()
    with seed_global_generator(0, "a"):
        both = build_backbone(config(pool="avg_max"), 64).eval()
    with torch.no_grad():
        maps = plain.model.forward_features(IMAGES)
        average, summed = plain(IMAGES), both(IMAGES)
    torch.testing.assert_close(average, maps.mean((2, 3)))
    torch.testing.assert_close(summed, maps.mean((2, 3)) + maps.amax((2, 3)))
    assert average.shape == (2, plain.features)
    assert (plain.pooling, both.pooling) == ("avg", "avg_max")


@pytest.mark.parametrize("name", ["test_vit", "test_mambaout", "mobilenetv3_small_050"])
def test_models_with_heads_of_their_own_pool_by_themselves(name: str) -> None:
    backbone = build_backbone(config(name=name), 64).eval()
    assert backbone.pooling == "timm"
    with torch.no_grad():
        wanted = backbone.model.forward_head(
            backbone.model.forward_features(IMAGES), pre_logits=True
        )
        assert torch.equal(backbone(IMAGES), wanted)
    assert wanted.shape == (2, backbone.features)


def test_packaged_weights_are_those_of_the_package() -> None:
    backbone = build_backbone(BackboneConfig(), 64).eval()
    assert (backbone.features, backbone.mean, backbone.std) == (1280, (0.5,) * 3, (0.5,) * 3)
    raw = torch.load(locate_packaged_file(), weights_only=True)
    own = backbone.model.state_dict()
    # Each tensor of the file once, under a name of the same shape; the classifier is left out.
    assert len(own) == len(raw) - 2
    sums = sorted(float(value.double().sum()) for name, value in raw.items() if "_fc" not in name)
    assert sorted(float(value.double().sum()) for value in own.values()) == sums
    assert torch.equal(own["blocks.2.1.conv_pwl.weight"], raw["_blocks.4._project_conv.weight"])
    assert torch.equal(own["blocks.0.0.bn2.running_var"], raw["_blocks.0._bn2.running_var"])
    assert hashlib.sha256(locate_packaged_file().read_bytes()).hexdigest() == PACKAGED_SHA256


@pytest.mark.parametrize("freeze", [True, False])
def test_frozen_batch_norm_keeps_its_statistics(freeze: bool) -> None:
    backbone = build_backbone(config(freeze_bn=freeze), 64)
    before = {n: b.clone() for n, b in backbone.named_buffers() if "running" in n}
    backbone.train()
    backbone(IMAGES).sum().backward()
    after = {n: b for n, b in backbone.named_buffers() if "running" in n}
    assert all(torch.equal(before[n], after[n]) for n in before) == freeze
    affine = [p for n, p in backbone.named_parameters() if "bn1.weight" in n]
    assert affine and all(p.requires_grad and p.grad is not None for p in affine)
    assert backbone.training
    assert not backbone.eval().training


def test_held_parts_do_not_train() -> None:
    backbone = build_backbone(config(name="test_vit", hold=("patch_embed", "cls_token")), 64)
    held = {n for n, p in backbone.model.named_parameters() if not p.requires_grad}
    assert held == {"patch_embed.proj.weight", "patch_embed.proj.bias", "cls_token"}
    # A prefix ends at a dot: layer1 is not layer10.
    assert "begins with 'patch_embe'. Names" in said(hold=("patch_embe",))


@pytest.mark.parametrize("kind", ["pth", "nested", "safetensors"])
def test_weights_from_a_file(tmp_path: Path, kind: str) -> None:
    with seed_global_generator(1, "source"):
        source = timm.create_model(TINY, pretrained=False)  # with its classifier
    path = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pth")
    tensors = source.state_dict()
    if kind == "safetensors":
        save_file(tensors, path)
    elif kind == "nested":
        torch.save({"state_dict": {f"module.{n}": t for n, t in tensors.items()}}, path)
    else:
        torch.save(tensors, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    given = config(weights=str(path), weights_sha256=digest)
    found = build_backbone(given, 64).model.state_dict()
    assert all(torch.equal(found[name], tensors[name]) for name in found)
    assert compute_weights_identity(given) == digest
    # The hash is asked for, told, and checked.
    assert digest in said(weights=str(path))
    assert f"not {'0' * 64}. Give the" in said(weights=str(path), weights_sha256="0" * 64)
    fits = said(name="test_efficientnet", weights=str(path), weights_sha256=digest)
    assert "missing" in fits and "Name the model" in fits


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return print, ("code ran",)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("content", ["pickle", "plain pickle", "text", "list"])
def test_files_that_are_no_plain_tensors(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.pth"
    if content == "pickle":
        torch.save({"a": Evil()}, path)
    elif content == "plain pickle":
        path.write_bytes(pickle.dumps({"a": Evil()}))
    elif content == "list":
        torch.save([torch.zeros(1)], path)
    else:
        path.write_text("hello")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert str(path) in said(weights=str(path), weights_sha256=digest)
    assert "code ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "test_resnt"}, "Did you mean .*test_resnet"),
        ({"name": "bn_inceptoin"}, "Did you mean bn_inception"),
        ({"name": "test_vit", "image_size": 17}, "cannot take 17 × 17 .* Change data.image_size"),
        ({"weights": "absent.pth", "weights_sha256": "0" * 64}, "No such file.*`ablate backbones`"),
        ({"mean": [104, 117, 128], "std": [1, 1, 1]}, "pixel_max: 255"),
        # the remedy is the source of the model's usual weights
        ({"weights": "packaged"}, "weights: timm for"),
        ({"weights": "imagenet"}, "'imagenet' weights .* weights: timm for"),
        ({"weights": "torchvision"}, "weights: timm for"),
        ({"name": "tf_efficientnet_lite0", "weights": "imagenet"}, "weights: packaged for"),
        ({"name": "googlenet", "weights": "timm"}, "weights: torchvision for"),
        ({"name": "googlenet", "weights": "packaged"}, "weights: torchvision for"),
        ({"name": "bn_inception", "weights": "timm"}, "weights: the path of a file for"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(fields: dict[str, Any], words: str) -> None:
    size = fields.pop("image_size", 64)
    with pytest.raises(ConfigError, match=words) as caught:
        build_backbone(config(**fields), size)
    assert "\n" not in str(caught.value)


def test_no_connection_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = timm.create_model

    def offline(name: str, pretrained: bool, **rest: Any) -> Any:
        if pretrained:
            raise ConnectionError("Name or service not known\nlong story")
        return real(name, pretrained=False, **rest)

    monkeypatch.setattr(timm, "create_model", offline)
    message = said(weights="timm")
    assert "could not be fetched (Name or service not known)" in message
    assert "packaged, none, or the path" in message


@pytest.mark.parametrize("name", ["test_vit", "test_vit2", "eva02_tiny_patch14_224"])
def test_tokens_are_pooled_as_the_option_says(name: str) -> None:
    size = 112  # a multiple of both patch sizes
    images = torch.linspace(-1, 1, 2 * 3 * size * size).view(2, 3, size, size).sin()
    backbone = build_backbone(config(name=name, tokens="mean"), size).eval()
    model: Any = backbone.model
    norm = model.fc_norm
    with torch.no_grad():
        tokens = model.forward_features(images)
        mean = norm(tokens[:, model.num_prefix_tokens :].mean(1))
        assert torch.equal(backbone(images), mean)
        own = model.forward_head(tokens, pre_logits=True)
        if model.global_pool == "avg":
            torch.testing.assert_close(mean, own)
        if model.cls_token is None:  # test_vit2 has a register token alone
            with pytest.raises(ConfigError, match="no class token"):
                pool_tokens(model, tokens, "both")
            return
        first = pool_tokens(model, tokens, "class")
        assert torch.equal(pool_tokens(model, tokens, "both"), torch.cat([first, mean], 1))
        if model.global_pool == "token":
            assert torch.equal(first, own)
    assert build_backbone(config(name=name, tokens="both"), size).features == 2 * mean.shape[1]


@pytest.mark.parametrize(("name", "tokens"), [(TINY, "mean"), ("test_vit3", "class")])
def test_a_plan_refuses_tokens_that_a_model_lacks(name: str, tokens: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_fits(config(name=name, tokens=tokens), 64)
    assert caught.value.path == "backbone.tokens"
    check_fits(config(name="test_vit", tokens="both"), 64)
