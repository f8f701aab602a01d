"""PEL: images as Gaussians, compared by samples of them; IDML's probabilistic baseline.

Shape legend: K samples · B batch · F features · D embedding dimensions · R references.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Unpack

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range
from trainables.losses import geometry as geometries
from trainables.losses.base import Geometry, ParamGroup, Traits
from trainables.methods.base import METHODS, MethodParts, Progress, State, Term, WeightedConfig
from trainables.methods.ddml import STD_SHIFT, compute_normal_kl, log_softplus
from trainables.methods.head import build_layer
from trainables.methods.mixing import Mixing, MixingConfig


@dataclass(frozen=True)
class PELState(State):
    """Hold the Gaussians of one step, [B, D] each.

    `query` has the samples [K, B, D], or the mean if there are none.
    """

    mean: Tensor
    std: Tensor
    log_std: Tensor


@METHODS.register("pel")
class PEL(Mixing):
    """Embed images as Gaussians and compare samples of them, under any loss:

        z ~ N(μ(x), diag σ²(x)),  K samples an image
        s(x_i, x_j) = 1/K² Σ_k Σ_k' s(z_i^k, z_j^k')            (Eq. 4 there, of scores)
        L = L_metric(s) + kl · 1/B Σ_i KL(N(μ_i, σ_i²) ‖ N(0, I)),  summed over dimensions

    A reference of the loss is a point: its score is the mean over K. Retrieval uses μ. With
    `mixing` the images are mixed as IDML's are (the rows PEL-Mixup).

    Logged:
        kl: the divergence of the Gaussians from N(0, I), mean over images.

    Deviations: as IDML says no more than that it "reproduced the framework on each loss", the loss
    takes the place of the soft contrastive loss, and so the mean is of its scores, not of
    match probabilities; one KL per image, not per image of a pair; σ = softplus(raw − 5) starts
    near 0; samples are L2-normalised where the loss's geometry normalises.

    Example:
        >>> list_term_weights(build_seeded_method("pel", "proxy_anchor"))
        {'metric': 1.0, 'kl': 0.0001}

    References:
        Oh et al., "Modeling uncertainty with hedged instance embeddings", ICLR 2019; IDML, Table 3
        (rows PEL). https://arxiv.org/abs/1810.00319
    """

    REVISION = 2
    classifies = False
    NEUTRAL: ClassVar[dict[str, object]] = {"samples": 0, "kl": 0.0, "mixing": "none"}
    WEIGHTS: ClassVar[dict[str, tuple[str, ...]]] = {"kl": ("kl",)}

    class Config(MixingConfig, WeightedConfig):
        """samples: K; 8 is the paper's; 0 compares the means. kl: weight of the KL term; 1e-4 is
        the paper's.

        monte_carlo: what is averaged over samples: "scores", the Monte-Carlo distance that IDML's
            section 3.1 speaks of, or "losses", L of each k's samples.
        Sources: mixing: IDML, Table 3; samples: the paper; monte_carlo: IDML, section 3.1.
        """

        name: Literal["pel"] = "pel"
        samples: int = Field(8, ge=0, le=64)
        kl: float = Field(1e-4, ge=0, **log_range(1e-6, 1e-2, "1e-4 in the paper"))
        monte_carlo: Literal["scores", "losses"] = "scores"

    def __init__(self, config: Config, **parts: Unpack[MethodParts]) -> None:
        super().__init__(config, **parts)
        self.options = config
        self.raw_std = build_layer("pel.std", parts["features"], parts["embedding"].dim)

    @classmethod
    def describe_traits(cls, config: Any) -> Traits:
        """Return the traits: scores are averaged over samples, and retrieval uses the mean."""
        averaged = config.samples > 0 and config.monte_carlo == "scores"
        return replace(super().describe_traits(config), own_scores=averaged, plain_retrieval=True)

    def forward(
        self, features: Tensor, labels: Tensor, progress: Progress, generator: Generator
    ) -> PELState:
        """Draw K samples of each image's Gaussian N(μ, σ²) as queries; K = 0 takes μ."""
        mean: Tensor = self.head(features)
        shifted = self.raw_std(features) - STD_SHIFT
        std = F.softplus(shifted)
        query = mean
        if self.options.samples:
            shape = (self.options.samples, *mean.shape)
            noise = torch.randn(shape, generator=generator, device=mean.device, dtype=mean.dtype)
            query = mean + std * noise
        return PELState(query, mean, std, log_softplus(shifted, std))

    def score(self, query: Tensor, reference: Tensor, geometry: Geometry) -> Tensor:
        """Return scores [B, R], averaged over K samples, or for "losses" per sample, [K, B, R]."""
        if query.dim() == 2 or self.options.monte_carlo == "losses":
            return geometries.score(query, reference, geometry)
        if reference.dim() == 2:
            return geometries.score(query, reference, geometry).mean(0)
        return geometries.score(query[:, None], reference[None], geometry).mean((0, 1))

    def terms(
        self, state: State, labels: Tensor, progress: Progress, generator: Generator
    ) -> dict[str, Term]:
        """Return the plain loss's terms and "kl", the divergence of the Gaussians from N(0, I)."""
        assert isinstance(state, PELState)
        terms = super().terms(state, labels, progress, generator)
        divergence = compute_normal_kl(state.mean, state.std, state.log_std)
        terms["kl"] = Term(divergence, self.options.kl)
        return terms

    def param_groups(self, phase: str) -> list[ParamGroup]:
        return [*super().param_groups(phase), ParamGroup.collect("head", self.raw_std)]
