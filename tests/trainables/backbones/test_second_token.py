"""A transformer's second token: beside timm's own blocks, and the models that can have none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from trainables.backbones.backbone import Backbone
from trainables.backbones.extra_token import ExtraTokenViT, check_tokens
from trainables.core.assembly import build_trial_backbone
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError

SIDE = 32
# A class token; register tokens and mean pooling; two tokens already, whose outputs are averaged.
MODELS = ("test_vit", "test_vit3", "deit_tiny_distilled_patch16_224")


def images(n: int = 3) -> Tensor:
    return torch.randn(n, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


def trial(name: str, token: str | None, **changes: Any) -> TrialConfig:
    made: dict[str, Any] = {
        "data": {"name": "digits", "image_size": SIDE},
        "backbone": {"name": name, "weights": "none"},
        "method": {"name": "idml", "uncertainty_token": token},
        **changes,
    }
    return TrialConfig.model_validate(made)


def two_tokens(name: str, seed: int = 0) -> ExtraTokenViT:
    made = build_trial_backbone(trial(name, "discarded"), seed)
    assert isinstance(made, ExtraTokenViT)
    return made.eval()


def plain(name: str, seed: int = 0) -> Backbone:
    made = build_trial_backbone(trial(name, None), seed).eval()
    assert not isinstance(made, ExtraTokenViT)
    return made


@pytest.mark.parametrize("name", MODELS)
def test_without_it_the_model_is_the_plain_one_to_the_bit(name: str) -> None:
    with_token, without = two_tokens(name), plain(name)
    assert torch.equal(with_token.without(images()), without(images()))
    with_token(images())  # leaves nothing behind
    assert torch.equal(with_token.without(images()), without(images()))
    own, others = with_token.state_dict(), without.state_dict()
    assert own.keys() - others.keys() == {"token"}
    assert all(torch.equal(own[key], value) for key, value in others.items())
    assert with_token.features == 2 * without.features


@pytest.mark.parametrize("name", ["test_vit", "deit_tiny_patch16_224"])
def test_it_is_one_of_the_sequence(name: str) -> None:
    backbone = two_tokens(name)
    model: Any = backbone.model
    with torch.no_grad():
        tokens = model.norm_pre(model._pos_embed(model.patch_embed(images())))
        tokens = torch.cat([tokens, backbone.token.expand(3, 1, -1)], 1)
        for block in model.blocks:
            tokens = block(tokens)
        tokens = model.norm(tokens)
        found = backbone(images())
        torch.testing.assert_close(found, torch.cat([tokens[:, 0], tokens[:, -1]], 1))
        # The class token attends to it, and it to the image.
        of_class, of_token = found.chunk(2, 1)
        assert (of_class - backbone.without(images())).abs().max() > 1e-4
        assert of_token.std(0).max() > 1e-4


def test_blocks_that_run_anew_in_backward_have_it_too() -> None:
    def gradient(checkpointed: bool) -> Tensor:
        backbone = two_tokens("test_vit").train()
        model: Any = backbone.model
        model.set_grad_checkpointing(checkpointed)
        backbone(images()).square().mean().backward()
        assert backbone.token.grad is not None
        return backbone.token.grad

    torch.testing.assert_close(gradient(True), gradient(False))


@pytest.mark.parametrize(
    ("name", "size", "fault"),
    [
        ("resnet18", 64, r"their shape is \[512, 2, 2\]"),
        ("swin_tiny_patch4_window7_224", 224, r"their shape is \[7, 7, 768\]"),
        ("test_vit_relpos", 160, r"160 × 160 images \(.* dimension of length 100 "),
        ("beit_base_patch16_224", 224, r"224 × 224 images \(.* dimension of length 197 "),
        ("pyramidnet200", 32, r"32 × 32 images \(it has no tokens\)"),
        ("test_vit", 40, r"40 × 40 images \(Input height \(40\) should be divisible by patch size"),
        ("mvitv2_tiny", 20, r"cannot take 20 × 20 images \(.*Dimension size must be non-negative"),
        ("nest_tiny", 50, r"cannot take 50 × 50 images \(`patch_size` must divide `img_size`"),
    ],
)
def test_models_that_can_have_none(name: str, size: int, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as caught:
        check_tokens(name, size, "method.uncertainty_token")
    assert caught.value.path == "backbone.name"
