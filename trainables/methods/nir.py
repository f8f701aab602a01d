"""NIR: a flow, conditioned on the class's proxy, maps each sample to a unique residual.

Shape legend: B batch · F features · D embedding dimensions · C classes · K references per class.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Unpack

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Generator, Tensor
from torch.func import functional_call

from trainables.config.ranges import log_range
from trainables.losses.base import LOSSES, Loss, ParamGroup, References, Trial, make_pairs
from trainables.methods.base import METHODS, MethodParts, Progress, State, Term, WeightedConfig
from trainables.methods.flow import Flow, FlowConfig, FlowOutput
from trainables.methods.plain import Plain
from trainables.streams import use_substream
from trainables.words.errors import ConfigError

# Above this exponent e^x goes on as its tangent, so that the squares of its gradients, which Adam
# keeps in float32, stay finite: those of e^45 do not.
LIMIT = 30.0


class NIRFlow(FlowConfig):
    """The paper's flow: 8 two-sided blocks of width 128, conditioned in all of them.

    "Linear layers with 128 nodes" leaves the subnets' depth open: one hidden layer here, in which
    two linear layers meet; the public code has five blocks of subnets with eight layers.
    Sources: kind: the paper's Eq. 7.
    """

    kind: Literal["realnvp", "nice", "glow"] = "glow"
    depth: int = Field(8, ge=1, le=64, **log_range(2, 12, "8 in paper, 5 in code", whole=True))
    width: int = Field(128, ge=1, le=8192, **log_range(64, 512, "128 in the paper", whole=True))


@dataclass(frozen=True)
class NIRState(State):
    """Hold the results of the flow in one step.

    Attributes:
        own: u = τ⁻¹(ψ|ρ) [B, D] and log|det ∂u/∂ψ| [B].
        other: the same with the proxy of another, random class.
        synthetic: τ(ζ|ρ) of ζ ~ N(0, I), [B, D].
    """

    own: FlowOutput
    other: FlowOutput | None
    synthetic: Tensor | None


@METHODS.register("nir")
class NIR(Plain):
    """Make each sample's position about its proxy unique by a flow conditioned on the proxy:

        L     = f(L_NIR) + ω · L_metric
        L_NIR = 1/B Σ_i (‖u_i‖² − log|det ∂u_i/∂ψ_i|),   u_i = τ⁻¹(ψ_i | ρ_{y_i}),   f = exp

    ψ is the L2-normalised embedding, ρ the L2-normalised proxy of the sample's class, τ⁻¹ a
    conditional flow. ω weighs the metric loss, its penalties included, and not the regulariser;
    `weight` weighs the regulariser, which the paper leaves at 1. Retrieval uses ψ.

    The flow trains with the `auxiliary` learning rate (the paper: × 50, the proxies × 4000). The
    warm-up of section 4.1, "adapting the translation τ over pretrained features first", is
    `schedule: {warmup_steps: 100, warmup_hold: [backbone, head, proxies]}`: the flow alone trains
    before the epochs. L_NIR is then about −30 with scale none and −270 with d (heads on typefaces,
    D = 128). The printed form, exp(L_NIR) without scale, is inert after that: its gradient is 4e-14
    of the metric's, and MAP@R that of the plain loss. With scale d the term acts from the first
    step on, and a flow that is trained costs more: on whole networks (ω = 0.1, two epochs, two
    seeds; plain 27.6) MAP@R is 27.5 without a warm-up, and with one 25.0 and 26.7 at limits of 0.1
    and 0.03. It is 27.6 if `auxiliary` is 0.01; what the proxies get makes no difference.

    Logged:
        nir: f(·), before its weight.
        synthetic: the base loss of generated embeddings, with option `synthetic`.
        nll: L_NIR by the reading chosen, before scale and f.
        log_det: mean log|det ∂u/∂ψ|.
        nir_gradient: norm of the gradient of the weighted regulariser with respect to the embedding
            before L2, after any `gradient_limit`.
        metric_gradient: the same of the weighted metric loss.
        nir_to_metric: ratio of the two; near 0 the regulariser does nothing.
        nir_limited: share of the steps that `gradient_limit` shortened.

    Deviations: `scale` is d, where the paper has none, because the un-scaled term soon vanishes.
    Exponents above 30 are continued as a straight line, so that a bad start neither overflows nor
    loses its gradient.

    Example:
        >>> list_term_weights(build_seeded_method("nir", "proxy_anchor"))
        {'metric': 0.01, 'nir': 1.0}

    References:
        Roth et al., "Non-isotropy regularization for proxy-based deep metric learning", CVPR
        2022, Eq. 10 and 11. https://arxiv.org/abs/2203.08547
    """

    REVISION = 1
    classifies = False
    NEUTRAL: ClassVar[dict[str, object]] = {"weight": 0.0, "omega": 1.0}
    WEIGHTS: ClassVar[dict[str, tuple[str, ...]]] = {"metric": ("omega",), "nir": ("weight",)}

    class Config(WeightedConfig):
        """The paper's settings are scale "none" and ω in [0.001, 0.01]; the public code's are
        reading "code", scale "none" and ω = 0.0075 (CUB), 0.01 (Cars), 0.3 (SOP).

        omega: ω; 0 leaves the regulariser alone. No measurable effect from 0.01 to 1 in a setting
            as at negative_pairs. weight: of the regulariser; 0 turns it off.
        reading: "paper", f(mean_i ‖u_i‖² − log|det|), or "code", mean_i f(½‖u_i‖² − log|det|).
        f: "exp" or "softplus", of the scaled L_NIR. Hardly any effect: MAP@R of heads is 33.0 and
            33.1 (scale d, ω = 0.1, limit 0.1, two seeds; data and loss as at gradient_limit).
        scale: of L_NIR before f. "none": 1. "t": `temperature`, Table 4's f(·, t). "d":
            temperature/D. Un-scaled, L_NIR is soon far below 0 and exp(L_NIR) vanishes. Measured on
            typefaces with Proxy-Anchor and the paper's settings, `nir_to_metric` is 0.2 to 1.2
            with d at D = 128, and 0.08 to 0.42 at D = 512; with none it is at most 3e-4 at D = 128,
            and 0 from the second epoch on at D = 512.
        proxy_backprop: whether the proxies get L_NIR's gradient too. No measurable effect: 32.98
            with it and 32.97 without, as at f.
        centre: of several references per class, the flow is conditioned on the "nearest" to
            the sample, or on their "mean"; each L2-normalised.
        negative_pairs: maximises L_NIR of each sample with the proxy of another class, drawn in
            each step: "difference", f(L⁺ − L⁻), or "separate", f(L⁺) + f(−L⁻) (Table 4 has no
            equation). No measurable effect: MAP@R of heads is 38.9 with each and without (ω = 0.1,
            limit 0.1, `auxiliary` 0.01, two seeds).
        synthetic: Table 5. One ψˢ = τ(ζ|ρ_y) for each sample of the batch enters the metric
            loss. "generate": ψˢ detached, proxies learn. "match": proxies detached, also as the
            condition, so that the flow learns alone. "both": neither detached.
        synthetic_weight: of that term, times ω; the paper does not state one.
        temperature: t of scales "t" and "d"; MAP@R is 32.7, 33.0 and 33.7 at 0.3, 1 and 3, as at f.
        gradient_limit: the largest ratio of the regulariser's gradient to the metric term's in a
            step, both with respect to the embedding. A longer one is shortened to it, and the
            regulariser's gradients of proxies and flow by the same factor. Where the flow learns
            as fast as the head, the gradient of a single step can be 1e14 times the metric's, and
            Adam then stands still for hundreds of steps. None: no limit. Validation MAP@R of heads
            on typefaces (Proxy-Anchor, D = 128, mean of three seeds; 33.9 without NIR):

                limit                   0.01    0.1      1   None
                none,  ω = 0.0075       33.9   33.9   31.9   30.0
                d,     ω = 0.1          33.8   33.1   32.8   32.8
                d,     ω = 0.01         33.9   32.7   28.6   28.6

            So a limit of 1 does not keep the term from costing 2 to 5 points. Recipes have 0.1.
        flow: the conditional flow; its own options follow. No measurable effect: MAP@R is 38.9 to
            39.0 at depths of 2 to 12, 38.9 to 39.1 at widths of 64 to 512, and 38.7 to 38.9 with
            the condition in one coupling or in all, as at negative_pairs.
        Sources: weight, reading, f, proxy_backprop: the paper; negative_pairs, synthetic: off, as
            in Eq. 10; scale, temperature, centre, synthetic_weight, gradient_limit: this project.
        """

        name: Literal["nir"] = "nir"
        omega: float = Field(0.01, ge=0, **log_range(1e-3, 1, "paper 1e-3 to 0.01, code to 0.3"))
        weight: float = Field(1.0, ge=0)
        reading: Literal["paper", "code"] = "paper"
        f: Literal["exp", "softplus"] = "exp"
        scale: Literal["none", "d", "t"] = "d"
        temperature: float = Field(1.0, gt=0, le=1000)
        proxy_backprop: bool = True
        centre: Literal["nearest", "mean"] = "nearest"
        negative_pairs: Literal["none", "difference", "separate"] = "none"
        synthetic: Literal["none", "generate", "match", "both"] = "none"
        synthetic_weight: float = Field(1.0, ge=0)
        flow: NIRFlow = NIRFlow()
        gradient_limit: float | None = Field(None, gt=0)

        @model_validator(mode="after")
        def check_scale(self) -> "NIR.Config":
            if self.scale == "none" and self.temperature != 1:
                raise ValueError(
                    f"temperature {self.temperature:g} has no effect with scale none. Set scale t."
                )
            return self

    @classmethod
    def check(cls, trial: Trial) -> None:
        name = trial.loss.name
        if LOSSES[name].references is Loss.references:
            raise ValueError(
                f"method nir needs a loss with proxies or centres, not {name}, because the flow is "
                "conditioned on the proxy of the sample's class. Take such a loss."
            )

    def __init__(self, config: Config, **parts: Unpack[MethodParts]) -> None:
        """Build the flow, which takes an embedding and is conditioned on a proxy."""
        super().__init__(config, **parts)
        if config.negative_pairs != "none" and self.classes < 2:
            raise ConfigError(
                "method.negative_pairs",
                f"{config.negative_pairs!r} needs two training classes or more",
                "Set none instead",
            )
        self.options = config
        dim = parts["embedding"].dim
        with use_substream("nir.flow"):
            self.flow = Flow(config.flow, dim=dim, condition_dim=dim)
        self._limiter = GradientLimiter(config.gradient_limit)

    def forward(
        self, features: Tensor, labels: Tensor, progress: Progress, generator: Generator
    ) -> NIRState:
        """Map each embedding by the flow to its residual about its proxy, which NIR regularises."""
        z: Tensor = self.head(features)
        # Split the paths of metric loss and regulariser, to record and limit their gradients.
        references = self._get_references()
        parameters: dict[str, Tensor] = dict(self.flow.named_parameters())
        tensors = [references.vectors, *parameters.values()]  # what the regulariser depends on
        limit = self.options.gradient_limit
        self._limiter = GradientLimiter(limit)
        query, flow_input, *limited = self._limiter.split(z, *([] if limit is None else tensors))
        vectors, *weights = limited or tensors  # without a limit the tensors stay as they are
        references = replace(references, vectors=vectors)
        parameters = dict(zip(parameters, weights, strict=True))
        # Run the flow under the proxy of each sample's class and under that of another class.
        psi, classes = F.normalize(flow_input, dim=-1), labels[:, 0]
        condition = self._choose_condition(psi, classes, references)
        own: FlowOutput = functional_call(self.flow, parameters, (psi, condition))
        other: FlowOutput | None = None
        if self.options.negative_pairs != "none":
            shift = torch.randint(
                1, self.classes, classes.shape, generator=generator, device=classes.device
            )
            others = self._choose_condition(psi, (classes + shift) % self.classes, references)
            other = functional_call(self.flow, parameters, (psi, others))
        return NIRState(query, own, other, self._generate_synthetic(condition, generator))

    def terms(
        self, state: State, labels: Tensor, progress: Progress, generator: Generator
    ) -> dict[str, Term]:
        """Return the plain loss's terms, weighed by ω, "nir" and, if asked for, "synthetic"."""
        assert isinstance(state, NIRState)
        terms = {
            name: Term(value, weight * self.options.omega)
            for name, (value, weight) in super().terms(state, labels, progress, generator).items()
        }
        terms["nir"] = Term(self._compute_regularizer(state), self.options.weight)
        if state.synthetic is not None:
            value = self._compute_synthetic_loss(state.synthetic, labels, generator)
            terms["synthetic"] = Term(value, self.options.omega * self.options.synthetic_weight)
        return terms

    def observed(self) -> dict[str, Tensor]:
        """Return likelihoods, gradient norms, and the ratio of NIR's gradient to the metric's."""
        norms = self._limiter.norms
        if {"nir_gradient", "metric_gradient"} <= norms.keys():
            ratio = norms["nir_gradient"] / norms["metric_gradient"]
            return self.observations | norms | {"nir_to_metric": ratio}
        return self.observations | norms

    def param_groups(self, phase: str) -> list[ParamGroup]:
        return [*super().param_groups(phase), ParamGroup.collect("auxiliary", self.flow)]

    def _get_references(self) -> References:
        references = self.loss.references()
        assert references is not None
        return references

    def _choose_condition(self, psi: Tensor, classes: Tensor, references: References) -> Tensor:
        """Return the proxy of each sample's class, [B, D]; of several, the nearest or the mean."""
        unit = F.normalize(references.vectors, dim=-1)
        if references.per_class == 1:
            condition = unit[classes]
        else:
            centres = unit.view(self.classes, references.per_class, -1)[classes]  # [B, K, D]
            if self.options.centre == "nearest":
                nearest = (centres @ psi[:, :, None]).argmax(1, keepdim=True)  # [B, 1, 1]
                condition = centres.take_along_dim(nearest, 1).squeeze(1)
            else:
                condition = F.normalize(centres.mean(1), dim=-1)
        return condition if self.options.proxy_backprop else condition.detach()

    def _generate_synthetic(self, condition: Tensor, generator: Generator) -> Tensor | None:
        """Return one embedding per proxy `condition`: the inverse of the flow on random noise."""
        kind = self.options.synthetic
        if kind == "none":
            return None
        noise = torch.randn(
            condition.shape, generator=generator, device=condition.device, dtype=condition.dtype
        )
        # "match" trains the flow and not the proxies, "generate" the proxies and not the flow
        condition = condition.detach() if kind == "match" else condition
        with torch.set_grad_enabled(kind != "generate"):
            return self.flow.inverse(noise, condition)

    def _compute_synthetic_loss(
        self, synthetic: Tensor, labels: Tensor, generator: Generator
    ) -> Tensor:
        """Return the metric loss of synthetic embeddings; with "match" the proxies are detached."""
        if self.options.synthetic != "match":
            return self.metric(synthetic, labels, generator)
        references = self._get_references()
        fixed = self.as_query(references.vectors.detach())
        score = self.score(synthetic, fixed, self.loss.geometry)
        pairs = make_pairs(labels, references.labels)
        return self.loss(score, pairs, generator=generator)

    def _compute_regularizer(self, state: NIRState) -> Tensor:
        """Return f(L_NIR), low where residuals about the proxy of the item's class are likely."""
        nll = self._negative_log_likelihood(state.own)
        self.observations = {
            "nll": nll.detach().mean(),
            "log_det": state.own.log_det.detach().mean(),
        }
        if state.other is None:
            return self._apply_growth(nll)
        other_nll = self._negative_log_likelihood(state.other)
        if self.options.negative_pairs == "difference":
            return self._apply_growth(nll - other_nll)
        return self._apply_growth(nll) + self._apply_growth(-other_nll)

    def _negative_log_likelihood(self, output: FlowOutput) -> Tensor:
        """Return each sample's negative log-likelihood [B] without constants, as in Eq. 10."""
        squares = output.z.square().sum(-1)
        return (squares if self.options.reading == "paper" else 0.5 * squares) - output.log_det

    def _apply_growth(self, nll: Tensor) -> Tensor:
        """Return f(mean nll) ("paper") or mean f(nll) ("code") of the scaled nll[B]."""
        scaled = nll.mean() if self.options.reading == "paper" else nll
        if self.options.scale != "none":
            scaled = self.options.temperature * scaled
        if self.options.scale == "d":
            scaled = scaled / self.flow.dim
        grown = exponential_with_tangent(scaled) if self.options.f == "exp" else F.softplus(scaled)
        return grown.mean()


def exponential_with_tangent(x: Tensor) -> Tensor:
    """Return e^x up to x = 30, and its tangent e^30 (1 + x − 30) above."""
    low = x.clamp(max=LIMIT)
    return low.exp() * (1 + (x - low))


class GradientLimiter:
    """Split a computation after x into a main path and a branch with a bounded gradient.

    `backward` scales all gradients of the branch, with respect to x and to its other tensors, by
    one factor

        min(1, limit · ‖∂main/∂x‖ / ‖∂branch/∂x‖)

    so that the branch keeps its direction. If the main path has no gradient, nothing is scaled; a
    branch whose gradient is not finite has no direction and gives zeros.

    Args:
        limit: the largest ratio of the two norms; None: norms are only recorded.

    Attributes:
        norms: after `backward`, the norms that `NIR` logs; main path: "metric_gradient".
    """

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.norms: dict[str, Tensor] = {}

    def split(self, x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Return x for the main path, x for the branch, and the branch's other tensors."""
        paths: tuple[Tensor, ...] = _SplitFunction.apply(x, self, *others)
        return paths

    def scale_branch(self, main: Tensor | None, branch: list[Tensor | None]) -> list[Tensor | None]:
        """Record the gradients' norms; return the branch's gradients, all scaled by one factor, so
        that ‖branch[0]‖ ≤ limit · ‖main‖. Both main and branch[0] are gradients of x.
        """
        if main is not None:
            self.norms["metric_gradient"] = torch.linalg.vector_norm(main.detach())
        if branch[0] is None:
            return branch
        length = self.norms["nir_gradient"] = torch.linalg.vector_norm(branch[0].detach())
        if main is None or self.limit is None:
            return branch
        finite = length.isfinite()
        factor = (self.limit * self.norms["metric_gradient"] / length).clamp(max=1)
        factor = torch.where(length > 0, factor, torch.ones_like(factor))  # not 0/0
        self.norms["nir_gradient"] = torch.where(finite, length * factor, torch.zeros_like(length))
        self.norms["nir_limited"] = ((factor < 1) | ~finite).to(length.dtype)
        return [
            None
            if gradient is None
            else torch.where(finite, gradient * factor, torch.zeros_like(gradient))
            for gradient in branch
        ]


class _SplitFunction(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, _: GradientLimiter, *others: Tensor) -> tuple[Tensor, ...]:
        return (x.view_as(x), x.view_as(x), *(other.view_as(other) for other in others))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _: Any) -> None:
        ctx.limiter = inputs[1]
        ctx.set_materialize_grads(False)  # None: the main path has no gradient

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the sum of x's gradients (either may be None), and those of the other tensors."""
        main, *branch = gradients
        scaled, *others = ctx.limiter.scale_branch(main, branch)
        total = scaled if main is None else main if scaled is None else main + scaled
        return (total, None, *others)
