"""DDML: class-agnostic and class-specific bottlenecks beside any metric loss.

Shape legend: B batch · F features · D embedding dimensions · P classes.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Unpack

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor, nn

from trainables.config.ranges import log_range
from trainables.config.registry import store_as_none
from trainables.losses import geometry as geometries
from trainables.losses.base import Loss, ParamGroup, References, Trial, build_probe, make_pairs
from trainables.losses.softmax import NormSoftmax, soft_cross_entropy
from trainables.methods.base import METHODS, MethodParts, Progress, State, Term, WeightedConfig
from trainables.methods.head import build_layer
from trainables.methods.plain import Plain
from trainables.streams import use_substream

# σ = softplus(raw − 5), 0.0067 where raw is 0
STD_SHIFT = 5.0
FIG_4 = "Fig. 4 with the printed ranges of α and γ exchanged"


@dataclass(frozen=True)
class DDMLState(State):
    """Hold the draws of one step, [..., B, D] each.

    Attributes:
        sample: z ~ p(z|x).
        specific_mean, specific_std, specific_log_std: parameters of p(zˢ|z).
        specific_sample: zˢ ~ p(zˢ|z).
        specific_noise: the standard-normal draw of that sample.
    """

    sample: Tensor
    specific_mean: Tensor
    specific_std: Tensor
    specific_log_std: Tensor
    specific_sample: Tensor
    specific_noise: Tensor


@METHODS.register("ddml")
class DDML(Plain):
    """Disentangle embeddings by class-agnostic and class-specific bottlenecks:

        L = L_metric
          + α · agnostic   cross-entropy of q(·|z) to the uniform distribution
          + β · specific   −log q(y|zˢ)
          + γ · split      KL(N(μˢ, σˢ²) ‖ N(0, I)), summed over dimensions

    z ~ N(μ, σ²) with μ, raw linear in the features; zˢ ~ N(μˢ, σˢ²) with (μˢ, rawˢ) one linear
    layer D → 2D on z (`specific_input`); σ = softplus(raw − 5); one reparameterised sample of each.
    q(·|z) = softmax(logit_scale · cos(z, proxies)), with the proxies of the metric loss, not
    detached; a loss without references gets a NormSoftmax decoder. With several references per
    class q(c|·) is the sum over those of class c. Retrieval uses μ.

    Only directions reach q, so a σ that drowns μ can satisfy the agnostic term without a change of
    retrieval; the logged ratios show it. `std_start` decides the first σ.

    The D × 2D layer trains with the `auxiliary` learning rate, both halves of the first encoder
    with that of the `head`.

    Logged:
        agnostic: the cross-entropy of the equation; log P is its least value.
        specific, split: the term of this name in the equation, before its weight.
        std: mean of σ.
        std_to_mean: ‖σ‖/‖μ‖; above 1 the noise is longer than the embedding (E‖σ ε‖² = ‖σ‖²).
        mean_to_sample: cos(μ, z), about 1/√(1 + (‖σ‖/‖μ‖)²) for independent noise.

    Deviations: the agnostic term as printed is constant and trains nothing, so the default is its
    cross-entropy. The metric loss takes μ, as in the public code, where Eq. 6 has an expectation
    over z. μ and raw come from two layers, and so start at N(0, 2/D), not at the N(0, 1/D) of one.

    Example:
        >>> list_term_weights(build_seeded_method({"name": "ddml", "alpha": 0.5}, "normsoftmax"))
        {'metric': 1.0, 'agnostic': 0.5, 'specific': 0.1, 'split': 1e-05}

    References:
        Park et al., "Deep disentangled metric learning", AAAI 2025, Eq. 6.
        https://doi.org/10.1609/aaai.v39i19.34184
    """

    REVISION = 1
    classifies = False
    NEUTRAL: ClassVar[dict[str, object]] = {"alpha": 0.0, "beta": 0.0, "gamma": 0.0}
    WEIGHTS: ClassVar[dict[str, tuple[str, ...]]] = {
        "agnostic": ("alpha",),
        "specific": ("beta",),
        "split": ("gamma",),
    }
    RATIOS: ClassVar[dict[str, tuple[float, float]]] = {"gamma": (1e-6, 1e-3)}  # γ's ratio grows

    class Config(WeightedConfig):
        """α, β, γ default to the public README's recipe for CUB with Proxy-Anchor (Cars 1, 0.1,
        1e-3; SOP 1, 1, 1e-4; Table 4, on NormSoftmax: 1, 1, 1e-7).

        alpha: α, weight of the agnostic term.
        beta: β, weight of the specific term.
        gamma: γ, weight of the split term. A relative γ is the ratio at the start, from which the
            term's gradient grows more than 400-fold in 100 steps: 1e-3 becomes 0.45, and costs 1.5
            points of MAP@R; 1e-4 costs nothing (heads on typefaces, NormSoftmax, two seeds).
        logit_scale: factor of the decoder's cosines; 23 in the public code. Or "tied": that of the
            loss whose proxies the decoder has (`Loss.logit_scale`): 1/τ of NormSoftmax, for which q
            is then the posterior that the loss trains; α of Proxy-Anchor; 20 of an added decoder.
        agnostic: "uniform_ce", −1/P Σ_j log q(j|z), which trains; or "printed",
            −log Σ_j q(j|z)/P of Eq. 5 and 6, which is the constant log P, without gradient.
        split: "closed" KL, or "sampled", log p(zˢ|z) − log r(zˢ) at the one sample.
        metric_input: what the metric loss compares: "mean" μ, as the public code does, or
            "sample" z, the expectation of Eq. 6.
        specific_input: what the D × 2D layer takes: "sample" z, as the Markov chain X → Z → Zˢ has
            it; "mean" μ; or "unit" z/‖z‖, as the public code is reported to do. With the first two
            the split term grows with the square of the embedding's length: take "unit" with
            weights from the paper or the public code.
        std_start: how the layers that give raw and rawˢ start; the paper says nothing. "kaiming",
            the default: weights N(0, 2/D) and no bias, as the head's, so that raw is about
            N(0, 2‖f‖²/D). On EfficientNet-Lite0 the mean of σ is then 1.8, 1.0 and 0.5 at D 128,
            256 and 512, and ‖σ‖/‖μ‖ is 0.8, 0.7 and 0.5 behind a "pca" head, half of that behind a
            "kaiming" one. "exact": weights zero, so that every σ is softplus(−5) = 0.0067 at first.
        Sources: logit_scale, metric_input: public code; agnostic, split, std_start: this project;
            specific_input: the paper's Markov chain.
        """

        name: Literal["ddml"] = "ddml"
        alpha: float = Field(1.0, ge=0, **log_range(1e-3, 3, f"{FIG_4}, recipe 1"))
        beta: float = Field(0.1, ge=0, **log_range(1e-3, 3, "Fig. 4, recipe 0.1 to 1"))
        gamma: float = Field(1e-5, ge=0, **log_range(1e-7, 0.1, f"{FIG_4}, recipe 1e-3 to 1e-5"))
        logit_scale: Annotated[float, Field(gt=0, le=1024)] | Literal["tied"] = 23.0
        agnostic: Literal["uniform_ce", "printed"] = "uniform_ce"
        split: Literal["closed", "sampled"] = "closed"
        metric_input: Literal["mean", "sample"] = "mean"
        specific_input: Literal["sample", "mean", "unit"] = "sample"
        std_start: Annotated[Literal["exact", "kaiming"] | None, store_as_none("kaiming")] = None

    @classmethod
    def check(cls, trial: Trial) -> None:
        """Refuse `logit_scale: tied` with a loss that has proxies but states no scale to tie to."""
        config = trial.method
        assert isinstance(config, cls.Config)
        if config.logit_scale != "tied":
            return
        loss = build_probe(trial.loss, trial.embedding.dim)
        if loss.references() is not None and loss.logit_scale is None:
            raise ValueError(
                f"loss {trial.loss.name} states no scale of its logits. Set method.logit_scale to "
                "a number instead of 'tied'."
            )

    def __init__(self, config: Config, **parts: Unpack[MethodParts]) -> None:
        """Build the layer of σ, the second encoder, and a decoder if the loss has no proxies."""
        super().__init__(config, **parts)
        self.options = config
        features, dim = parts["features"], parts["embedding"].dim
        self.raw_std = build_layer("ddml.std", features, dim)
        self.specific = build_layer("ddml.specific", dim, 2 * dim)
        if config.std_start == "exact":  # the same σ for all images at the start
            nn.init.zeros_(self.raw_std.weight)
            nn.init.zeros_(self.specific.weight[dim:])
        self.decoder: NormSoftmax | None = None
        if self.loss.references() is None:
            with use_substream("ddml.decoder"):
                self.decoder = NormSoftmax(NormSoftmax.Config(), classes=self.classes, dim=dim)

    def forward(
        self, features: Tensor, labels: Tensor, progress: Progress, generator: Generator
    ) -> DDMLState:
        """Draw z ~ N(μ, σ²) of each image, then zˢ ~ N(μˢ, σˢ²), whose parameters depend on z."""
        mean: Tensor = self.head(features)
        std = F.softplus(self.raw_std(features) - STD_SHIFT)
        sample = mean + std * _draw_noise_like(mean, generator)
        self.observations = summarize_spread(mean.detach(), std.detach(), sample.detach())
        specific_input = mean if self.options.specific_input == "mean" else sample
        if self.options.specific_input == "unit":
            specific_input = geometries.normalize_to_unit(specific_input)
        specific_mean, raw = self.specific(specific_input).chunk(2, dim=-1)
        shifted = raw - STD_SHIFT
        specific_std = F.softplus(shifted)
        noise = _draw_noise_like(specific_mean, generator)
        return DDMLState(
            query=mean if self.options.metric_input == "mean" else sample,
            sample=sample,
            specific_mean=specific_mean,
            specific_std=specific_std,
            specific_log_std=log_softplus(shifted, specific_std),
            specific_sample=specific_mean + specific_std * noise,
            specific_noise=noise,
        )

    def terms(
        self, state: State, labels: Tensor, progress: Progress, generator: Generator
    ) -> dict[str, Term]:
        """Return the terms of the plain loss and DDML's: agnostic, specific and split."""
        assert isinstance(state, DDMLState)
        terms = super().terms(state, labels, progress, generator)
        references = self._get_decoder_references()
        agnostic = self._compute_agnostic(self._compute_logits(state.sample, references))
        specific = soft_cross_entropy(
            self._compute_logits(state.specific_sample, references),
            make_pairs(labels, torch.arange(self.classes, device=labels.device)).pos,
        )
        terms["agnostic"] = Term(agnostic, self.options.alpha)
        terms["specific"] = Term(specific, self.options.beta)
        terms["split"] = Term(self._compute_split(state), self.options.gamma)
        return terms

    def param_groups(self, phase: str) -> list[ParamGroup]:
        """Add the layer of σ, the second encoder and the decoder to the plain loss's groups."""
        groups = [
            *super().param_groups(phase),
            ParamGroup.collect("head", self.raw_std),
            ParamGroup.collect("auxiliary", self.specific),
        ]
        return groups if self.decoder is None else [*groups, *self.decoder.param_groups()]

    def _get_decoder_references(self) -> References:
        references = self._get_proxy_loss().references()
        assert references is not None
        return references

    def _get_proxy_loss(self) -> Loss:
        return self.loss if self.decoder is None else self.decoder

    def _compute_logits(self, z: Tensor, references: References) -> Tensor:
        """Return the class logits [..., B, P] of z[..., B, D]: scaled cosines with the proxies."""
        cosine = (
            geometries.normalize_to_unit(z) @ geometries.normalize_to_unit(references.vectors).mT
        )
        scale = self.options.logit_scale
        factor = self._get_proxy_loss().logit_scale if scale == "tied" else scale
        assert factor is not None, "refused by `check`"
        logits = factor * cosine
        if references.per_class > 1:  # add the probabilities of the proxies of a class
            shape = (*logits.shape[:-1], self.classes, references.per_class)
            logits = logits.reshape(shape).logsumexp(-1)
        return logits

    def _compute_agnostic(self, logits: Tensor) -> Tensor:
        log_q = F.log_softmax(logits, dim=-1)
        if self.options.agnostic == "uniform_ce":
            return -log_q.mean()
        return (math.log(self.classes) - log_q.logsumexp(-1)).mean()

    def _compute_split(self, state: DDMLState) -> Tensor:
        """Return KL(N(μˢ, σˢ²) ‖ N(0, I)), in closed form or estimated from the one sample zˢ."""
        std, log_std = state.specific_std, state.specific_log_std
        if self.options.split == "closed":
            return compute_normal_kl(state.specific_mean, std, log_std)
        squares = state.specific_sample.square() - state.specific_noise.square()
        return (0.5 * squares - log_std).sum(-1).mean()


def summarize_spread(mean: Tensor, std: Tensor, sample: Tensor) -> dict[str, Tensor]:
    """Return batch means that say how large the noise is relative to the embedding μ[..., B, D]."""
    ratio = std.norm(dim=-1) / mean.norm(dim=-1).clamp_min(1e-12)
    return {
        "std": std.mean(),
        "std_to_mean": ratio.mean(),
        "mean_to_sample": F.cosine_similarity(mean, sample, dim=-1).mean(),
    }


def compute_normal_kl(mean: Tensor, std: Tensor, log_std: Tensor) -> Tensor:
    """Return the mean over [..., B] of KL(N(μ, σ²) ‖ N(0, I)), from tensors [..., B, D]."""
    second_moment = mean.square() + std.square()
    return (0.5 * (second_moment - 1) - log_std).sum(-1).mean()


def log_softplus(x: Tensor, softplus: Tensor) -> Tensor:
    """Return log softplus(x), and x itself far below zero, where softplus underflows to 0."""
    far = x < -20
    return torch.where(far, x, torch.where(far, torch.ones_like(x), softplus).log())


def _draw_noise_like(x: Tensor, generator: Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
