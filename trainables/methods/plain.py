"""The base loss on a linear embedding head: what every other method is compared with."""

from typing import ClassVar, Literal, Unpack

import torch
from torch import Generator, Tensor

from trainables.config.registry import ComponentConfig, NamedConfig
from trainables.losses import geometry as geometries
from trainables.losses.base import Geometry, ParamGroup
from trainables.methods.base import METHODS, Method, MethodParts, Progress, State
from trainables.methods.head import build_linear_head
from trainables.streams import use_substream


@METHODS.register("plain")
class Plain(Method):
    """Train the base loss on one linear layer, with which every other method is compared:

        z = W f + b,   [B, F] → [B, D];   L = L_metric(z)

    Retrieval uses z, L2-normalised or clipped as the geometry of retrieval has it, and
    classification as that of training has it.

    Example:
        >>> list_term_weights(build_seeded_method("plain", "normsoftmax"))
        {'metric': 1.0}

    References:
        The comparison of losses on one linear layer by Musgrave et al., "A metric learning
        reality check", ECCV 2020. https://arxiv.org/abs/2003.08505
    """

    REVISION = 1
    NEUTRAL: ClassVar[dict[str, object]] = {}
    classifies = True

    class Config(NamedConfig):
        """No options: embedding and loss say all."""

        name: Literal["plain"] = "plain"

    def __init__(self, config: ComponentConfig, **parts: Unpack[MethodParts]) -> None:
        super().__init__(config, **parts)
        with use_substream("head"):
            self.head = build_linear_head(parts["features"], parts["embedding"])

    @torch.no_grad()
    def fit(self, features: Tensor) -> None:
        """Set the head to the principal directions of the training features."""
        weight, bias = self.principal(features, self.head.out_features)
        self.head.weight.copy_(weight)
        if self.head.bias is not None:
            self.head.bias.copy_(bias)

    def forward(
        self, features: Tensor, labels: Tensor, progress: Progress, generator: Generator
    ) -> State:
        return State(self.head(features))

    def embed(self, features: Tensor, geometry: Geometry | None = None) -> Tensor:
        """Return z = W f + b, normalised or clipped as the geometry (default: retrieval's) does."""
        z: Tensor = self.head(features)
        geometry = geometry or self.loss.retrieval
        if geometry.normalize:
            return geometries.normalize_to_unit(z)
        return z if geometry.clip is None else geometries.clip_length(z, geometry.clip)

    def param_groups(self, phase: str) -> list[ParamGroup]:
        return [ParamGroup.collect("head", self.head), *self.loss.param_groups()]
