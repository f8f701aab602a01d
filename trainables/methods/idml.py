"""IDML: an uncertainty embedding beside the semantic one, and a metric that it weakens.

Shape legend: B batch · F features · D, U sizes of the semantic and uncertainty embedding ·
E = D + U · R references.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor, nn

from trainables.backbones.extra_token import check_tokens
from trainables.config.ranges import log_range, range_between
from trainables.config.registry import store_as_none
from trainables.losses import geometry as geometries
from trainables.losses.base import LOSSES, Geometry, Loss, ParamGroup, Traits, Trial, build_probe
from trainables.losses.geometry import safe_sqrt, squared_distance
from trainables.losses.softmax import Softmax
from trainables.methods.base import METHODS, MethodParts, Progress, State
from trainables.methods.head import build_layer
from trainables.methods.mixing import UNUSED, Mixing, MixingConfig, cut_mix, draw_beta_share, mix_up
from trainables.words.errors import ConfigError

# Least α that r divides by. Below it `safe_sqrt` gives α = 0 with gradient 0 and e^{−r/τ} is
# taken at this α: Eq. 6 and 8 vanish there all the same, and nothing is 0/0.
CLOSEST = 1e-6
DEFAULT_GAIN = 0.01


@METHODS.register("idml")
class IDML(Mixing):
    """Weaken the scores of uncertain pairs by a learnt uncertainty, under any loss:

        s = W_s f + b_s [B, D],  u = W_u f + b_u [B, U];  α = ‖s_i − s_j‖,  β = ‖u_i + u_j‖
        r    = (β + γ) / α                  relative uncertainty of a pair, Eq. 5
        D_IN = α · e^{−r/τ}                 Eq. 6, of distances
        C_IN = 1 − (1 − C) · e^{−r/τ}       Eq. 8 and 19, of cosines: "ism_sim"
        C_IN = C · e^{−r/τ}                 Eq. 20, of cosines: "ism_dis"

    The introspective score replaces the plain one: a loss of distances gets −D_IN, one of squared
    distances −D_IN², one of cosines C_IN, with α = √(2 − 2C). Where the loss's geometry normalises,
    s is of unit length in α too; u never is. So the losses give the paper's Eq. 7, 9 and appendix A
    without changes, mining and sampling included. Mixed images are trained on by the three losses
    of the public code; the paper's text has one (option `objective`).

    Deviations: the public code differs from the paper's equations. In retrieval it is `uncertainty:
    unit, gamma: 4` on Proxy-Anchor. In classification the paper is C_IN at τ = 1, γ = 0 on
    NormSoftmax, the public code `uncertainty: relu, tau: 5, gamma: 0, bias_in_score: true` on the
    loss softmax. Here there is one λ per step. On NormSoftmax the sum of Eq. 9 includes the image's
    own class, and scores are divided by the loss's temperature. The uncertainty head learns at the
    rate of `auxiliary` and starts as a "kaiming" head times `uncertainty_gain`: at a gain of 1 ‖u‖
    is about 110 on EfficientNet-Lite0, where α ≤ 2, so that e^{−r/τ} is 0 for every pair for ever.
    Recipes set `uncertainty_start: 0.1` instead, and the rate of `auxiliary` to 0.01. On heads
    (typefaces, Proxy-Anchor, no mixing; plain 33.9 MAP@R in validation) a rate of 1 gives 28.8, and
    0.1 and 0.01 give 34.0; ‖u‖ ends at 5.3, 0.13 and 0.04. Beside the same mixtures under the plain
    metric (`metric: plain`) the score then has no measurable effect on heads with mixed features
    (32.55 and 32.51). On whole networks with mixed images five seeds do not decide: IDML gains 1.32
    (standard error 0.32) over the plain loss, and mixing alone −0.01 (0.73).

    Logged:
        uncertainty_original: mean ‖u‖ of the step's original images.
        uncertainty_mixed: mean ‖u‖ of the step's mixed images.
        uncertainty_gap: ‖u‖ of a mixture minus the mean of its two images, measured at the end.

    Example:
        >>> list_term_weights(build_seeded_method("idml", "proxy_anchor"))
        {'metric': 1.0}

    References:
        Wang et al., "Introspective deep metric learning", 2022, Eq. 5 to 9, 19 and 20.
        https://arxiv.org/abs/2205.04449. Public code: https://github.com/wangck20/IDML.
    """

    REVISION = 2
    NEUTRAL: ClassVar[dict[str, object]] = {
        "mixing": "none",
        "tau": 1e12,
        "gamma": 0.0,
        "uncertainty_token": None,
    }
    MEASURES: ClassVar[tuple[str, ...]] = (
        "uncertainty_original",
        "uncertainty_mixed",
        "uncertainty_gap",
    )

    class Config(MixingConfig):
        """Defaults are the paper's for CUB; γ = 3 for Cars196, τ = 1 in classification.

        tau: τ, how little uncertainty weakens (the settings of the paper once call it ε). On heads
            without mixing, with `uncertainty_start` 0.1 and `auxiliary` 0.01, validation MAP@R is
            34.5, 34.0 and 33.9 at 0.5, 5 and 50 (typefaces, Proxy-Anchor, three seeds; plain 33.9).
        gamma: γ, the introspective bias; MAP@R there is 34.0, 34.4 and 33.5 at 0, 1 and 4.
        metric: "ism_sim" (Eq. 6, 8, 19); "ism_dis" (Eq. 20, for losses of cosines); "plain", the
            loss's own score, in which the uncertainty has no part (mixing alone, Table 3).
        uncertainty_dim: U; D is `embedding.dim`. No measurable effect: MAP@R there is 33.95, 33.96
            and 33.97 at 32, 128 and 512.
        uncertainty: "vector", the paper's: u as it is, β = ‖u_i + u_j‖, α un-squared. "unit", the
            public code's: u of unit length, β² and α² in place of β and α, proxies not normalised
            in α²; with proxies of no uncertainty β is 1 and u gets no gradient. "relu", its reading
            in classification: ReLU(u), β² and α² in place of β and α, nothing normalised, and
            the product ⟨s, w⟩ with class weights for C in Eq. 8; for losses of such products.
        proxy_uncertainty: u of the loss's references: "zero", or "learnable" from zero.
        squared: what a loss of squared distances gets: "squared", −D_IN², its own definition on the
            introspective distance; "plain", −D_IN, as Eq. 14 has for Proxy-NCA, whose own
            distance is squared.
        test_metric: what retrieval compares: "semantic" s alone, or "introspective", [s | u] by the
            score that trained (Table 8).
        uncertainty_gain: of the uncertainty head's initial weights.
        uncertainty_start: replaces the gain by the start that is wanted, on every backbone:

                uncertainty_start = mean ‖u‖ / mean ‖s‖,   with ‖s‖ = 1 where the loss normalises

            The trial measures both means on its first four batches, mixtures included, and scales
            W_u once before the first step. 0.1 leaves e^{−r/τ} at 0.99 for images that are √2
            apart at τ = 5; gain 0.01 on EfficientNet-Lite0 starts at 1.1. None: the gain.
        uncertainty_token: u = W_u · output of a second token of a vision transformer + b_u, and s
            of the class token's (Table 9 and appendix C.5; `backbones/extra_token.py`); None: off.
            "discarded", the paper's words: evaluation runs the transformer without it, though the
            class token attended to it in training. "kept": it stays in the sequence, and only its
            output is left out, unless test_metric is introspective. Deviations: the paper takes
            the tokens' outputs as the embeddings, here each goes through its linear head. The
            token learns at the rate of `backbone`, with weight decay. Uncertainties are observed
            and measured with the token.
        bias_in_score: with uncertainty "relu", the classifier's bias b is part of the product and,
            as in the public code, of the distance to the class weight w_j + b_j·1:

                1 − (1 − ⟨s, w_j⟩ − b_j) e^{−r/τ},   r = (β² + γ) / ‖s − (w_j + b_j·1)‖²

            None: off, b_j is added to the score.
        Sources: mixing, metric, uncertainty_dim, uncertainty, test_metric, uncertainty_token,
            bias_in_score: the paper; proxy_uncertainty: public code; squared, uncertainty_gain,
            uncertainty_start: this project.
        """

        name: Literal["idml"] = "idml"
        mixing: Literal["none", "mixup", "cutmix", "feature_mixup"] = "mixup"
        tau: float = Field(5.0, gt=0, le=1e12, **log_range(0.5, 50, "Fig. 4: 1 to 9"))
        gamma: float = Field(0.0, ge=0, le=1e3, **range_between(0, 4, "Fig. 4: 0 to 4"))
        metric: Literal["ism_sim", "ism_dis", "plain"] = "ism_sim"
        uncertainty_dim: int = Field(512, ge=1, le=8192)
        uncertainty: Literal["vector", "unit", "relu"] = "vector"
        proxy_uncertainty: Literal["zero", "learnable"] = "zero"
        squared: Literal["squared", "plain"] = "squared"
        test_metric: Literal["semantic", "introspective"] = "semantic"
        uncertainty_gain: float = Field(DEFAULT_GAIN, gt=0, le=100)
        uncertainty_start: float | None = Field(None, gt=0, le=100)
        uncertainty_token: Literal["discarded", "kept"] | None = None
        bias_in_score: Annotated[bool | None, store_as_none(False)] = None

    def __init__(self, config: Config, **parts: Unpack[MethodParts]) -> None:
        """Build the uncertainty layer beside the head, and learnable uncertainties of proxies."""
        if config.uncertainty_token is not None:  # the features are those of two tokens
            parts["features"] //= 2
        super().__init__(config, **parts)
        self.width = width = parts["features"]
        self.options = config
        self.dim = parts["embedding"].dim
        self.uncertainty = build_layer("idml.uncertainty", width, config.uncertainty_dim)
        with torch.no_grad():
            self.uncertainty.weight.mul_(config.uncertainty_gain)
        self.proxy_uncertainty: nn.Parameter | None = None
        references = self.loss.references()
        if references is not None and config.proxy_uncertainty == "learnable":
            shape = (len(references.vectors), config.uncertainty_dim)
            self.proxy_uncertainty = nn.Parameter(torch.zeros(shape))

    @classmethod
    def check(cls, trial: Trial) -> None:
        """Refuse combinations of options, loss and backbone for which the method is not defined."""
        super().check(trial)
        config, name = trial.method, trial.loss.name
        assert isinstance(config, IDML.Config)
        loss, geometry = LOSSES[name], build_probe(trial.loss, trial.embedding.dim).geometry
        has_bias = isinstance(trial.loss, Softmax.Config) and trial.loss.bias
        token, is_relu = config.uncertainty_token, config.uncertainty == "relu"
        takes_products = loss.classifies and not geometry.normalize
        takes_distances = geometry.kind in ("l2", "l2sq")
        introspective = config.metric != "plain"
        tests_introspective = config.test_metric == "introspective"
        for is_refused, reason in (
            (
                is_relu and not takes_products,
                "method.uncertainty relu needs a loss of products with class weights (softmax), "
                f"not {name}. Take uncertainty vector, or the loss softmax.",
            ),
            (
                config.uncertainty_start is not None and config.uncertainty_gain != DEFAULT_GAIN,
                f"method.uncertainty_start {config.uncertainty_start} replaces uncertainty_gain "
                f"{config.uncertainty_gain:g}. Leave out one of them.",
            ),
            (
                config.bias_in_score and not (is_relu and has_bias),
                f"method.bias_in_score needs uncertainty relu (now {config.uncertainty}) and a "
                f"loss softmax with a bias (now {name}). Set both, or leave bias_in_score out.",
            ),
            (
                token is not None and (trial.backbone.mode == "frozen" or not introspective),
                f"method.uncertainty_token {token} needs backbone.mode finetune (cached features "
                "have no token) and a method.metric other than plain. Set both, or no token.",
            ),
            (
                tests_introspective and (token == "discarded" or not introspective),
                "method.test_metric must be semantic, not introspective: metric plain trains no "
                "uncertainty, and uncertainty_token discarded removes it.",
            ),
            (
                introspective and not is_relu and not takes_distances and not geometry.is_cosine,
                f"method.metric {config.metric} needs a loss of cosines or Euclidean distances, "
                f"and the geometry of {name} is {geometry.kind}. Take another loss.",
            ),
            (
                config.metric == "ism_dis" and (is_relu or not geometry.is_cosine),
                "method.metric must be ism_sim, not ism_dis, with uncertainty relu or geometry "
                f"{geometry.kind} (loss {name}), because ism_dis is defined for cosines only.",
            ),
            (
                introspective
                and config.proxy_uncertainty == "learnable"
                and loss.references is Loss.references,  # the class does not override it
                f"loss {name} has no proxies. Set method.proxy_uncertainty to zero.",
            ),
            (
                token is not None and trial.backbone.tokens is not None,
                "method.uncertainty_token adds a token to the model's own pooling. Leave out "
                "backbone.tokens.",
            ),
        ):
            if is_refused:
                raise ValueError(reason)
        if token is not None:
            check_tokens(trial.backbone.name, trial.data.image_size, "method.uncertainty_token")

    @classmethod
    def describe_traits(cls, config: Any) -> Traits:
        """Return the traits: unless `metric` is "plain", the method computes its own scores."""
        return replace(
            super().describe_traits(config),
            own_scores=config.metric != "plain",
            plain_retrieval=config.test_metric == "semantic",
            second_token=config.uncertainty_token,
            scaled_start=config.uncertainty_start is not None,
        )

    def fit(self, features: Tensor) -> None:
        super().fit(features[:, : self.width])

    @torch.no_grad()
    def scale_start(self, features: Tensor) -> None:
        """Scale the uncertainty layer so that ‖u‖ starts at its wanted share of ‖s‖."""
        start = self.options.uncertainty_start
        assert start is not None
        length, uncertainty = (
            torch.ones(()),
            self._compute_uncertainty(features).norm(dim=-1).mean(),
        )
        if not self.loss.geometry.normalize:
            length = self.head(features[:, : self.width]).norm(dim=-1).mean()
        factor = float(start * length / uncertainty)
        if not 0 < factor < math.inf:
            raise ConfigError(
                "method.uncertainty_start",
                f"{start:g} cannot be reached, because on the first batches the mean length of the "
                f"embeddings is {float(length):g} and that of u {float(uncertainty):g}",
                "Leave it out, so that uncertainty_gain sets the start",
            )
        self.uncertainty.weight.mul_(factor)

    def forward(
        self, features: Tensor, labels: Tensor, progress: Progress, generator: Generator
    ) -> State:
        """Return queries [s | u]: the semantic embedding and the uncertainty of each image."""
        s, u = self.head(features[:, : self.width]), self._compute_uncertainty(features)
        self.observations = self._measure_uncertainty(u.detach(), labels)
        return State(s if self.options.metric == "plain" else self._join_halves(s, u))

    def embed(self, features: Tensor, geometry: Geometry | None = None) -> Tensor:
        s = super().embed(features[:, : self.width], geometry)
        if self.options.test_metric == "semantic":
            return s
        return self._join_halves(s, self._compute_uncertainty(features))

    def as_query(self, vectors: Tensor) -> Tensor:
        """Return reference vectors with their uncertainty appended: learnable, or zero."""
        if self.options.metric == "plain":
            return vectors
        if self.proxy_uncertainty is not None:
            return torch.cat([vectors, self.proxy_uncertainty], -1)
        no_uncertainty = vectors.new_zeros(len(vectors), self.options.uncertainty_dim)
        return torch.cat([vectors, no_uncertainty], -1)

    def embedding_of(self, query: Tensor) -> Tensor:
        return self._split_parts(query)[0]

    def score(self, query: Tensor, reference: Tensor, geometry: Geometry) -> Tensor:
        """Return scores [..., B, R], weakened by e^{−r/τ} with r a pair's relative uncertainty."""
        form = self.options.metric
        if form == "plain":
            return geometries.score(query, reference, geometry)
        (s_q, u_q), (s_r, u_r) = self._split_parts(query), self._split_parts(reference)
        plain = geometries.score(s_q, s_r, geometry)
        bias: Tensor | None = None
        if self.options.bias_in_score:
            assert isinstance(self.loss, Softmax) and self.loss.bias is not None
            bias = self.loss.bias
            plain, s_r = plain + bias, s_r + bias[:, None]
        # r = (β + γ) / α, from each pair's uncertainty β and distance α, or r = (β² + γ) / α²
        beta_squared, gamma = squared_distance(u_q, -u_r), self.options.gamma
        if self.options.uncertainty == "vector":
            alpha = semantic_distance(plain, geometry).clamp_min(CLOSEST)
            relative = (safe_sqrt(beta_squared) + gamma) / alpha
        else:
            alpha_squared = squared_distance(s_q, s_r).clamp_min(CLOSEST**2)
            relative = (beta_squared + gamma) / alpha_squared
        exponent = -relative / self.options.tau
        # weaken the score in the form that fits the loss's geometry
        if geometry.kind == "l2sq" and self.options.squared == "plain":
            return -semantic_distance(plain, geometry) * exponent.exp()
        if geometry.kind == "l2sq":
            return plain * (2 * exponent).exp()
        if geometry.kind == "l2" or form == "ism_dis":
            return plain * exponent.exp()
        # Eq. 8, written as C − (1 − C)(e^{−r/τ} − 1), is C to the last bit for r = 0.
        score = plain - (1 - plain) * torch.expm1(exponent)
        # The loss will add the bias to every score, so the bias inside is taken off.
        return score if bias is None else score - bias

    @torch.no_grad()
    def measure(
        self, inputs: Tensor, features: Callable[[Tensor], Tensor], generator: Generator
    ) -> dict[str, Tensor]:
        """Return ‖u‖ of images, ‖u‖ of mixtures, and the gap between a mixture and its images.

        Each image is mixed with the next one, by CutMix if training does so, else by Mixup, with
        one λ ~ Beta(b, b). The gap is ‖u‖ of the mixture minus the mean of its images (Fig. 6, 8).
        """
        share = draw_beta_share(self.mix.mixing_beta, inputs, generator)
        partner = inputs.roll(-1, 0)
        if self.mix.mixing == "cutmix":
            mixed, _ = cut_mix(inputs, partner, share, generator)
        else:
            mixed = mix_up(inputs, partner, share)
        original_norms, mixed_norms = (
            self._compute_uncertainty(features(x)).norm(dim=-1) for x in (inputs, mixed)
        )
        gap = mixed_norms - (original_norms + original_norms.roll(-1, 0)) / 2
        return dict(zip(self.MEASURES, (original_norms, mixed_norms, gap), strict=True))

    def param_groups(self, phase: str) -> list[ParamGroup]:
        groups = [*super().param_groups(phase), ParamGroup.collect("auxiliary", self.uncertainty)]
        if self.proxy_uncertainty is not None:
            groups.append(ParamGroup("proxies", [self.proxy_uncertainty]))
        return groups

    def _compute_uncertainty(self, features: Tensor) -> Tensor:
        u: Tensor = self.uncertainty(features[:, -self.width :])
        return F.relu(u) if self.options.uncertainty == "relu" else u

    def _join_halves(self, s: Tensor, u: Tensor) -> Tensor:
        """Return the query [s | u]; for "unit" normalise u, and s if the loss's geometry does."""
        if self.options.uncertainty == "unit":
            u = F.normalize(u, dim=-1)
            if self.loss.geometry.normalize:
                s = F.normalize(s, dim=-1)
        return torch.cat([s, u], -1)

    def _split_parts(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return y[..., : self.dim], y[..., self.dim :]

    def _measure_uncertainty(self, u: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the mean ‖u‖ of the step's original images, and that of its mixed images."""
        norms = u.norm(dim=-1)
        if self.mix.mixing == "none" or labels.shape[1] == 1:
            return {"uncertainty_original": norms.mean()}
        mixed = (labels[:, -1] != UNUSED).to(norms.dtype)  # 1 for an image with a second label
        # A step without images of a kind gives 0/0, which the mean of the epoch leaves out.
        means = {"uncertainty_mixed": (norms * mixed).sum() / mixed.sum()}
        if self.mix.originals == "kept" or self.mix.mixing_probability < 1:
            means["uncertainty_original"] = (norms * (1 - mixed)).sum() / (1 - mixed).sum()
        return means


def semantic_distance(score: Tensor, geometry: Geometry) -> Tensor:
    """Return α [..., B, R], the un-squared Euclidean distance behind a plain score."""
    if geometry.kind == "l2":
        return -score
    return safe_sqrt(-score if geometry.kind == "l2sq" else (2 - 2 * score).clamp_min(0))
