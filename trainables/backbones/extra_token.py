"""A second learned token beside a transformer's class token: IDML's for uncertainty (Table 9).

It joins the sequence where the first block begins, at its end, so that every block's attention goes
both ways. Its output is the last place of what the last norm over tokens leaves. Any timm model
will do whose blocks take a sequence of tokens of any length and leave one for each (DeiT, ViT); not
those that lay tokens on a map again or add biases by position to attention (Swin, BEiT, EVA).

Shape legend: B batch · S side of the image · N tokens without it · F features.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from trainables.backbones.backbone import Backbone
from trainables.backbones.own_models import BACKBONES
from trainables.backbones.timm_models import build_on_meta, extract_first_line
from trainables.machine.devices import to_full_precision
from trainables.words.errors import ConfigError

FAULTS = (AssertionError, AttributeError, RuntimeError, ValueError, TypeError)  # of a model's code
STD = 0.02  # of the token's first values, as of DeiT's distillation token


class ExtraTokenViT(Backbone):
    """A backbone whose transformer has a second token; drawn from torch's global generator.

    The token starts as DeiT's distillation token does, N(0, 0.02²) cut off at ±2. It has no
    position embedding of its own: a sum of two learned vectors is one.

    features: 2 F, the class token's output (or what the model pools), then the second token's.
    """

    def __init__(self, plain: Backbone) -> None:
        """Take the model of `plain`; a hook lets its first block append the token to its inputs."""
        same = ("pooling", "pixels", "freeze_bn", "channels_last")
        settings = {name: getattr(plain, name) for name in same}
        super().__init__(plain.model, features=2 * plain.features, **settings)
        self.token = nn.Parameter(nn.init.trunc_normal_(torch.empty(plain.features), std=STD))
        self.joins = False  # whether the token joins in this pass
        # `forward` does not reset `joins`, because a checkpointed block runs again in `backward`.
        self.model.get_submodule("blocks.0").register_forward_pre_hook(
            lambda _, inputs: _join(self.token, inputs) if self.joins else None
        )
        self.train(plain.training)

    def forward(self, images: Tensor) -> Tensor:
        """Map normalised images [B, 3, S, S] to features of both tokens, [B, 2 F] float32."""
        self.joins = True
        tokens = self.compute_maps(images)
        return torch.cat([self.pool(tokens[:, :-1]), to_full_precision(tokens[:, -1])], 1)

    def without(self, images: Tensor) -> Tensor:
        """Map normalised images to the features [B, F] of the model without the second token."""
        self.joins = False
        return super().forward(images)


def _join(token: Tensor, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Append `token` [F] to the tokens [B, N, F] in a block's inputs; for a forward pre-hook."""
    tokens, *others = inputs
    token = token.to(tokens.dtype).expand(len(tokens), 1, -1)
    return torch.cat([tokens, token], 1), *others


@lru_cache(maxsize=64)  # a plan calls this for each of its trials
def check_tokens(name: str, image_size: int, option: str) -> None:
    """Refuse a model that cannot have a second token beside its class token; load no weights.

    Args:
        name: `backbone.name`. option: the option that needs the token, for the error.
    """
    fault = "it has no tokens"
    if name not in BACKBONES:
        model: Any = build_on_meta(name, image_size).eval()
        try:
            fault = _find_token_fault(model, image_size)
        except FAULTS as error:
            fault = extract_first_line(error)
    if fault:
        raise ConfigError(
            "backbone.name",
            f"{option} needs a timm transformer that keeps its tokens, and {name} is not one for "
            f"{image_size} × {image_size} images ({fault})",
            f"Take deit_small_patch16_224 or another ViT, or leave {option} out",
        )


@torch.no_grad()
def _find_token_fault(model: Any, image_size: int) -> str:
    """Try a second token in a model on the meta device; return why it fails, or "" if it works."""
    with torch.device("meta"):
        images = torch.empty(2, 3, image_size, image_size)
        tokens = model.forward_features(images)
        pooled = model.forward_head(tokens, pre_logits=True)
        if tokens.dim() != 3 or tokens.shape[-1] != pooled.shape[-1]:
            return f"its features are no tokens: their shape is {list(tokens.shape[1:])}"
        token = torch.empty(pooled.shape[-1])
        first = model.get_submodule("blocks.0")
        first.register_forward_pre_hook(lambda _, inputs: _join(token, inputs))
        longer = model.forward_features(images)
    batch, count, width = tokens.shape
    return "" if longer.shape == (batch, count + 1, width) else "its blocks take no further token"
