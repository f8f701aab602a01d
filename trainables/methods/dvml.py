"""DVML: the spread within classes as a variational part, and samples generated from it.

Shape legend: B batch · F features · D embedding dimensions · H hidden width · T samples.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from trainables.config.ranges import log_range, range_between
from trainables.config.registry import store_as_none
from trainables.losses.base import ParamGroup, Traits, Trial, make_pairs
from trainables.losses.geometry import safe_sqrt
from trainables.methods.base import METHODS, MethodParts, Progress, State, Term, WeightedConfig
from trainables.methods.head import build_layer, initialize_linear
from trainables.methods.plain import Plain
from trainables.streams import use_substream

# Where log σ² begins to grow as a logarithm; σ² is e^10 = 22,026 there.
LOG_VARIANCE_BEND = 10.0


@dataclass(frozen=True)
class DVMLState(State):
    """Hold the parts of one step; `query` is z_I, [B, D].

    Attributes:
        mean, log_variance: parameters of q(z_V|x), [B, D].
        generated: z_I + z_V for T draws of z_V, [T, B, D].
        reconstructed: output of the decoder, [T, B, F].
        target: features to reconstruct, [B, F].
    """

    mean: Tensor
    log_variance: Tensor
    generated: Tensor
    reconstructed: Tensor
    target: Tensor


@METHODS.register("dvml")
class DVML(Plain):
    """Model the spread within classes by a variational part, and train on samples of it:

        L = λ1 · L1   kl              KL(N(μ, σ²) ‖ N(0, I)), summed over D, mean over B
          + λ2 · L2   reconstruction  ‖f − decoder(ẑ)‖², summed over F, mean over B and T
          + λ3 · L3   generated       L_m(ẑ), ẑ = z_I + z_V, T draws z_V ~ N(μ, σ²) an image
          + λ4 · L4   metric          L_m(z_I)

    μ, log σ² and z_I are three linear heads on the pooled features f; z_I is the embedding, the
    only one that retrieval uses (the paper's text once calls it the variance). The decoder is
    D → H → tanh → F. All T draws go through decoder and loss in one pass.

    Two phases: while the share of all optimiser steps that was taken, warm-up included, is below
    `phase1`, L2 trains the decoder alone (it gets ẑ without gradient) and the weights are
    `lambda*_phase1`; after that L2 reaches heads and backbone too, and the weights are
    `lambda*_phase2`. The loss's own penalty is added once, unweighted. The heads train with the
    learning rate of the `head`, the decoder with `auxiliary`.

    Deviations: the divergence has the sign that minimising needs, which Eq. 8 does not (`kl`). log
    σ² above 10 grows as 10 + ln(1 + x − 10), so that σ² and its gradient stay finite. The added
    layers start as in Chainer, which the paper used: weight N(0, 1/inputs), bias 0; z_I's head
    starts as every method's, by `embedding.init`.

    Logged:
        kl, reconstruction, generated: the term of this name in the equation, before its weight.
        std: mean of σ; 1 is the prior's.
        invariant_norm: mean length of z_I.
        variance_norm: mean length of z_V.

    Example:
        >>> list_term_weights(build_seeded_method("dvml", "n_pair"))
        {'metric': 1.0, 'norm': 0.002, 'kl': 1.0, 'reconstruction': 1.0, 'generated': 0.1}

    References:
        Lin et al., "Deep variational metric learning", ECCV 2018, Eq. 7 to 12.
        https://doi.org/10.1007/978-3-030-01267-0_42. No code of the authors was found.
    """

    REVISION = 1
    classifies = False
    NEUTRAL: ClassVar[dict[str, object]] = {
        f"lambda{term}_phase{phase}": float(term == 4) for term in (1, 2, 3, 4) for phase in (1, 2)
    }
    WEIGHTS: ClassVar[dict[str, tuple[str, ...]]] = {
        "metric": ("lambda4_phase1", "lambda4_phase2"),
        "kl": ("lambda1_phase1", "lambda1_phase2"),
        "reconstruction": ("lambda2_phase2",),  # in phase 1 it trains the decoder alone
        "generated": ("lambda3_phase1", "lambda3_phase2"),
    }

    class Config(WeightedConfig):
        """The weights are the paper's; it does not state the phases' length.

        lambda1_phase1, lambda1_phase2: λ1, weight of the term kl.
        lambda2_phase1, lambda2_phase2: λ2, of reconstruction.
        lambda3_phase1, lambda3_phase2: λ3, of generated.
        lambda4_phase1, lambda4_phase2: λ4, of metric.
        phase1: share of all optimiser steps that belongs to the first phase; 0: the second
            alone, 1: the first alone.
        samples: T. No measurable effect: MAP@R of heads is 37.2 at 1, 5 and 20 (Proxy-Anchor on
            typefaces, two seeds).
        hidden: H.
        generated: "batches", the mean of the loss over T batches of B samples, each compared
            within itself; or "pooled", the loss of one batch of T · B samples, each compared with
            all others, in which those of one image are adjacent.
        same_image: in a pooled batch two samples of one image are a "positive" pair, or no pair
            ("excluded"). It has no effect on a loss with references.
        kl_over: L1 of an image is the "sum" over the D dimensions, as in Eq. 8; or their "mean",
            with which a λ1 found at one D holds at another. `weights: relative` takes this factor
            away, except where `spread` is detached, so that L1 reaches neither embedding nor
            features and λ1 stays absolute.
        kl: "corrected", +KL; or "printed", Eq. 8's sign, with which minimising drives the
            posterior away from the prior without bound.
        reconstruction: "squared", or "norm", ‖f − decoder(ẑ)‖ as "L-2 distance" may be read.
        target: "detached", or "attached": L2 then also trains the features that it reconstructs,
            in both phases.
        spread: whether the gradients of μ and log σ² reach the features, "attached", or end at
            those two heads, "detached". A backbone that trains can lower L1 by features that are
            alike for all images: at the paper's weights the embedded data are lost within an epoch
            (`search_spaces/results/networks_why.md`). With cached features both are the same.
        Sources: lambda2_phase1, lambda4_phase1, lambda1_phase2, lambda3_phase2, lambda4_phase2,
            samples, hidden, reconstruction, kl_over: the paper; generated, same_image, kl, target,
            spread: this project.
        """

        name: Literal["dvml"] = "dvml"
        lambda1_phase1: float = Field(1.0, ge=0, **log_range(1e-5, 1, "1 in the paper"))
        lambda2_phase1: float = Field(1.0, ge=0)
        lambda3_phase1: float = Field(0.1, ge=0, **log_range(0.01, 3, "0.1 in the paper"))
        lambda4_phase1: float = Field(1.0, ge=0)
        lambda1_phase2: float = Field(0.8, ge=0)
        lambda2_phase2: float = Field(1.0, ge=0, **log_range(1e-6, 1, "1 in the paper"))
        lambda3_phase2: float = Field(0.2, ge=0)
        lambda4_phase2: float = Field(0.8, ge=0)
        phase1: float = Field(0.5, ge=0, le=1, **range_between(0.1, 0.9, "none in the paper"))
        samples: int = Field(20, ge=1, le=1000)
        hidden: int = Field(512, ge=1, le=65_536)
        generated: Literal["batches", "pooled"] = "batches"
        same_image: Literal["positive", "excluded"] = "positive"
        kl: Literal["corrected", "printed"] = "corrected"
        reconstruction: Literal["squared", "norm"] = "squared"
        target: Literal["detached", "attached"] = "detached"
        spread: Literal["attached", "detached"] = "attached"
        kl_over: Annotated[Literal["sum", "mean"] | None, store_as_none("sum")] = None

    @classmethod
    def check(cls, trial: Trial) -> None:
        """Refuse a phase that runs but in which all weights are 0, so that nothing would train."""
        config = trial.method
        assert isinstance(config, cls.Config)
        for phase, runs in ((1, config.phase1 > 0), (2, config.phase1 < 1)):
            weights = [getattr(config, f"lambda{term}_phase{phase}") for term in (1, 2, 3, 4)]
            if runs and not any(weights):
                raise ValueError(
                    f"all four lambdas of phase {phase} are 0, so that phase {phase} would train "
                    f"nothing. Set lambda4_phase{phase} for the plain loss, or phase1 to "
                    f"{phase - 1} to leave the phase out."
                )

    @classmethod
    def describe_traits(cls, config: Any) -> Traits:
        """Return the traits; a loss that takes embeddings cannot exclude pairs of one image."""
        excluded = config.generated == "pooled" and config.same_image == "excluded"
        return replace(super().describe_traits(config), own_scores=excluded)

    def __init__(self, config: Config, **parts: Unpack[MethodParts]) -> None:
        """Build the layers of μ and log σ², and the decoder that reconstructs features."""
        super().__init__(config, **parts)
        self.options = config
        features, dim = parts["features"], parts["embedding"].dim
        self.mean = build_layer("dvml.mean", features, dim, "lecun")
        self.log_variance = build_layer("dvml.log_variance", features, dim, "lecun")
        with use_substream("dvml.decoder"):
            inner, outer = nn.Linear(dim, config.hidden), nn.Linear(config.hidden, features)
            initialize_linear(inner, "lecun")
            initialize_linear(outer, "lecun")
        self.decoder = nn.Sequential(inner, nn.Tanh(), outer)

    def forward(
        self, features: Tensor, labels: Tensor, progress: Progress, generator: Generator
    ) -> DVMLState:
        """Embed each image as z_I, and generate ẑ = z_I + z_V with T draws z_V ~ N(μ, σ²)."""
        invariant: Tensor = self.head(features)
        spread_input = features if self.options.spread == "attached" else features.detach()
        mean: Tensor = self.mean(spread_input)
        log_variance = bend_log_variance(self.log_variance(spread_input))  # keeps exp finite
        std = (0.5 * log_variance).exp()
        shape = (self.options.samples, *mean.shape)
        noise = torch.randn(shape, generator=generator, device=mean.device, dtype=mean.dtype)
        variant = mean + std * noise
        generated = invariant + variant
        # in phase 1 the reconstruction trains the decoder alone
        decoder_input = generated.detach() if self._is_first_phase(progress) else generated
        self.observations = {
            "std": std.detach().mean(),
            "invariant_norm": invariant.detach().square().sum(-1).sqrt().mean(),
            "variance_norm": variant.detach().square().sum(-1).sqrt().mean(),
        }
        return DVMLState(
            query=invariant,
            mean=mean,
            log_variance=log_variance,
            generated=generated,
            reconstructed=self.decoder(decoder_input),
            target=features.detach() if self.options.target == "detached" else features,
        )

    def terms(
        self, state: State, labels: Tensor, progress: Progress, generator: Generator
    ) -> dict[str, Term]:
        """Return the four losses of DVML with their weights λ₁ to λ₄ of the current phase."""
        assert isinstance(state, DVMLState)
        # The metric loss comes first, so that its random draws are those of the plain loss.
        terms = super().terms(state, labels, progress, generator)
        phase = 1 if self._is_first_phase(progress) else 2
        weights = [getattr(self.options, f"lambda{term}_phase{phase}") for term in (1, 2, 3, 4)]
        terms["metric"] = Term(terms["metric"].value, weights[3])
        terms["kl"] = Term(self._compute_kl(state), weights[0])
        terms["reconstruction"] = Term(self._compute_reconstruction(state), weights[1])
        terms["generated"] = Term(
            self._compute_generated(state.generated, labels, generator), weights[2]
        )
        return terms

    def param_groups(self, phase: str) -> list[ParamGroup]:
        """Train the layers of μ and log σ² as the head, and the decoder as `auxiliary`."""
        return [
            *super().param_groups(phase),
            ParamGroup.collect("head", self.mean, self.log_variance),
            ParamGroup.collect("auxiliary", self.decoder),
        ]

    def _is_first_phase(self, progress: Progress) -> bool:
        return progress.fraction < self.options.phase1

    def _compute_kl(self, state: DVMLState) -> Tensor:
        """Return KL(N(μ, σ²) ‖ N(0, I)), averaged over images; the printed equation negates it."""
        log_variance = state.log_variance
        inner = 1 + log_variance - state.mean.square() - log_variance.exp()
        total = inner.mean(-1) if self.options.kl_over == "mean" else inner.sum(-1)
        printed = 0.5 * total.mean()
        return printed if self.options.kl == "printed" else -printed

    def _compute_reconstruction(self, state: DVMLState) -> Tensor:
        squared = (state.target - state.reconstructed).square().sum(-1)
        return (squared if self.options.reconstruction == "squared" else safe_sqrt(squared)).mean()

    def _compute_generated(self, generated: Tensor, labels: Tensor, generator: Generator) -> Tensor:
        """Return the metric loss of ẑ[T, B, D], taken as T batches or as one batch of B · T."""
        if self.options.generated == "batches":
            return self.metric(generated, labels, generator)
        samples, images, _ = generated.shape
        pooled = generated.transpose(0, 1).flatten(0, 1)  # samples of one image side by side
        repeated = labels.repeat_interleave(samples, 0)
        if self.loss.references() is not None or self.options.same_image == "positive":
            return self.metric(pooled, repeated, generator)
        # pooled, without the positive pairs of two samples of one image
        itself = torch.arange(len(pooled), device=pooled.device)
        pairs = make_pairs(repeated, repeated, self_index=itself)
        image = torch.arange(images, device=pooled.device).repeat_interleave(samples)
        other_image = (image[:, None] != image[None, :]).to(pairs.pos.dtype)
        pairs = replace(pairs, pos=pairs.pos * other_image)
        score = self.score(pooled, pooled, self.loss.geometry)
        return self.loss(score, pairs, generator=generator)


def bend_log_variance(x: Tensor) -> Tensor:
    """Return x up to c = LOG_VARIANCE_BEND and c + ln(1 + x − c) above, whose exp is linear."""
    above = (x - LOG_VARIANCE_BEND).clamp_min(0)
    return torch.where(x <= LOG_VARIANCE_BEND, x, LOG_VARIANCE_BEND + torch.log1p(above))
