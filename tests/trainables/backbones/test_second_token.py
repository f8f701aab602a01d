"""A transformer's second token: beside timm's own blocks, and the models that can have none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from trainables import streams
from trainables.backbones.backbone import Backbone, build_backbone
from trainables.backbones.second_token import STD, TwoTokens, check_tokens
from trainables.config.network import BackboneConfig
from trainables.core.network import build_trial_backbone
from trainables.errors import ConfigError
from trainables.trial import TrialConfig

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


def two_tokens(name: str, seed: int = 0) -> TwoTokens:
    made = build_trial_backbone(trial(name, "discarded"), seed)
    assert isinstance(made, TwoTokens)
    return made.eval()


def plain(name: str, seed: int = 0) -> Backbone:
    made = build_trial_backbone(trial(name, None), seed).eval()
    assert not isinstance(made, TwoTokens)
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


@pytest.mark.parametrize("name", MODELS)
def test_it_learns_from_both_outputs(name: str) -> None:
    backbone = two_tokens(name).double()
    for half in (0, 1):
        out = backbone(images().double()).chunk(2, 1)[half].double()
        (gradient,) = torch.autograd.grad(out.square().sum() + out[:, 0].sum(), backbone.token)
        assert gradient.norm() > 0
    assert any(each is backbone.token for each in backbone.trainable_parameters())


def test_blocks_that_run_anew_in_backward_have_it_too() -> None:
    def gradient(checkpointed: bool) -> Tensor:
        backbone = two_tokens("test_vit").train()
        model: Any = backbone.model
        model.set_grad_checkpointing(checkpointed)
        backbone(images()).square().mean().backward()
        assert backbone.token.grad is not None
        return backbone.token.grad

    torch.testing.assert_close(gradient(True), gradient(False))


def test_its_draws_move_no_others() -> None:
    before = torch.get_rng_state()
    first, again, other = (two_tokens("test_vit", seed).token for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again) and not torch.equal(first, other)
    with streams.seeded(0, "init", "second_token"):
        wanted = torch.nn.init.trunc_normal_(torch.empty(64), std=STD)
    assert torch.equal(first, wanted)
    assert 0.5 * STD < first.std() < 1.5 * STD


def test_the_images_it_sees_are_the_backbones_own() -> None:
    """Channel order, memory format and bfloat16 are those of any backbone."""
    backbone = TwoTokens(build_backbone(BackboneConfig(name="test_vit", weights="none"), SIDE))
    backbone.eval()
    wanted = backbone(images().flip(1))
    backbone.bgr, backbone.channels_last = True, True
    # Kernels of another memory format add in another order.
    torch.testing.assert_close(backbone(images()), wanted)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = backbone(images())
    assert rounded.dtype is torch.float32
    torch.testing.assert_close(rounded, wanted, atol=0.1, rtol=0.1)


@pytest.mark.parametrize(
    ("name", "size", "found"),
    [
        ("resnet18", 64, r"which gives features of shape \[512, 2, 2\], not tokens"),
        ("swin_tiny_patch4_window7_224", 224, r"features of shape \[7, 7, 768\], not tokens"),
        ("test_vit_relpos", 160, "whose blocks take no token more"),
        ("beit_base_patch16_224", 224, "whose blocks take no token more"),
        ("pyramidnet200", 32, "which has no tokens"),
        ("test_vit", 40, r"cannot take 40 × 40 images \("),
    ],
)
def test_models_that_can_have_none(name: str, size: int, found: str) -> None:
    with pytest.raises(ConfigError, match=found) as told:
        check_tokens(name, size, "method.uncertainty_token")
    assert told.value.path == "backbone.name"
    assert told.value.expected.startswith("a timm transformer that keeps its tokens")
    assert "leave method.uncertainty_token out" in told.value.remedy


@pytest.mark.parametrize("name", ["deit_small_patch16_224", "vit_small_patch14_reg4_dinov2"])
def test_models_that_can(name: str) -> None:
    check_tokens(name, 112, "method.uncertainty_token")
