"""DetReg: minimise the stretching of one flow on the embedding, maximise that of a second one.

Shape legend: B batch · F features · D embedding dimensions · S label slots.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Unpack

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor
from torch.func import jacrev, vmap

from trainables.config.ranges import log_range
from trainables.config.registry import store_as_none
from trainables.losses.base import Geometry, Loss, ParamGroup, Trial, make_pairs
from trainables.losses.geometry import squared_distance
from trainables.methods.base import METHODS, MethodParts, Progress, State, Term, WeightedConfig
from trainables.methods.flow import Coupling, Flow, FlowConfig, FlowOutput, soft_clamp
from trainables.methods.plain import Plain
from trainables.streams import use_substream

Across = Literal["sum", "mean", "product"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "tanh": torch.tanh,
    "none": lambda x: x,
}


@dataclass(frozen=True)
class DetRegState(State):
    """Hold the outputs of both branches.

    Attributes:
        second: [B, D], output of the second branch, or None.
        r1, r2: scalars, R of each branch.
    """

    second: Tensor | None
    r1: Tensor
    r2: Tensor | None


@METHODS.register("detreg")
class DetReg(Plain):
    """Regularise how much a flow on the embedding stretches space:

        L = L_metric(g₁(z)) [+ L_metric(g₂(z))] + λ₁ R₁ − λ₂ R₂

    z = activation(n(W f + b)), n by `input`, and g₁, g₂ are flows on ℝᴰ. R_b is the mean of

        R(x) = 1/D Σ_i log(λ_i + 1)                                             Eq. 7 and 10

    of g_b, summed over layers, over the batch's points z and the augmented points
    z_i + ε (z_j − z_i), where z_j is the k-th nearest item of the same class in the batch, by
    Euclidean distance; an item without one has no augmented point. Gradients of R flow to both
    items of a pair, and on into the backbone. The soft clamp of the flow's scales bounds R₂.
    Retrieval uses g₁(z), L2-normalised. The flows train with the `auxiliary` learning rate.

    Logged:
        metric2: the base loss on the second branch.
        r1, r2: R of the branch, over the batch's points and the augmented ones.
        with_neighbour: the share of items that have an augmented point.
        r1_items, r2_items: R over the batch's points alone.
        r1_augmented, r2_augmented: R over the augmented points alone; undefined without any.
        r1_log_det, r2_log_det: the mean log |det| of the branch per dimension; 0: volume is kept.

    Deviations: R comes from the Jacobian's diagonal, as Eq. 10 has it, and not from the singular
    values of Eq. 7 (an option). The printed direction z_i − z_j leads away from the neighbour,
    though the text wants a point between the two; the point between is the default. n makes W f + b
    of unit length, which the paper says of the last layer alone (5.4): on EfficientNet-Lite0 ‖z‖ is
    about 54 otherwise, where twelve layers that start near the identity turn the gradient of z by
    33° from the plain loss's at the first step; with unit z they turn it by 5°.

    It is the plain loss, bit for bit, with a flow of depth 0 and all other parts off (`NEUTRAL`);
    with `flow.identity` in place of depth 0 it is so at the first step, before the flow trains.

    Example:
        >>> list_term_weights(build_seeded_method("detreg", "proxy_anchor"))
        {'metric': 1.0, 'metric2': 1.0, 'r1': 0.05, 'r2': -0.05}

    References:
        "Determinant regularization for deep metric learning", submitted to ICLR 2023, Eq. 11.
        https://openreview.net/forum?id=NUBuJsAq1U. No public code was found.
    """

    REVISION = 2
    classifies = False
    NEUTRAL: ClassVar[dict[str, object]] = {
        "lambda1": 0.0,
        "input": "raw",
        "flow": FlowConfig(depth=0),
        "activation": "none",
        "dueling": False,
        "normalize": False,
    }
    WEIGHTS: ClassVar[dict[str, tuple[str, ...]]] = {"r1": ("lambda1",), "r2": ("lambda2",)}
    # R pulls at the flow, not only at z
    RATIOS: ClassVar[dict[str, tuple[float, float]]] = dict.fromkeys(
        ("lambda1", "lambda2"), (1e-5, 1e-2)
    )

    class Config(WeightedConfig):
        """lambda1, lambda2: weights of R₁, minimised, and of R₂, maximised. In the paper's range
            they have no measurable effect: 0, 0.05 and 0.5 give 35.29, 35.28 and 35.30 MAP@R (heads
            on typefaces, `input: sqrt_d`, six seeds), because at 0.05 the gradient of R is 2e-5 of
            the metric loss's (2e-6 with unit z). With `weights: relative` 0.01 costs 7 points,
            since R pulls at the flow far more than at z: take 1e-5 to 1e-2.
        epsilon: ε, how far an augmented point lies on the way to the neighbour. No measurable
            effect: 0, 0.4 and 0.8 give 34.70 MAP@R each with λ 0.5, and 28.34, 28.34 and 28.33 with
            a relative λ of 0.1.
        flow: both branches' flow; each draws its own start.
        input: n, length of what activation, augmentation and flow get: "unit", 1, the default;
            "sqrt_d", √D, so that entries are about 1, which is 0.5 points of MAP@R better on heads
            (35.28 and 34.79, six seeds) and is what recipes have; "raw", as it is.
        activation: between n and flow. The paper does not name its own. ReLU drops the half of z
            that is below 0, which costs much behind centred features ("pca" in particular).
        dueling: whether there is a second branch; lambda2 is unused without.
        second_metric: the metric loss on the second branch as well, which Eq. 11 does not settle;
            without it nothing but R₂ shapes that branch.
        proxies: "shared" by both branches, or the second branch's "own", a copy of the loss.
        augmentation: "between", z_i + ε (z_j − z_i); "printed", z_i + ε (z_i − z_j); "none".
        neighbour: k, the rank of z_j among the item's class in the batch.
        spectrum: λ_i of a layer: the entries of its Jacobian's "diagonal" (Eq. 10), which are e^s
            for scaled dimensions and 1 for all others; or its "singular" values (Eq. 7), which
            cost an SVD per item and layer: for small D.
        across: "sum" adds the R of all layers, as Lemma 1 multiplies their constants; "mean"
            divides that by their number; "product" has one R, of the product of layer diagonals
            along each dimension, or of the singular values of the whole flow.
        normalize: L2 after the flow; where the loss's geometry normalises, that is it already.
        Sources: dueling, normalize, epsilon: the paper; spectrum: Eq. 10; across: Lemma 1;
            augmentation: the paper's text; activation, second_metric, proxies, neighbour, input:
            this project.
        """

        name: Literal["detreg"] = "detreg"
        lambda1: float = Field(0.05, ge=0, **log_range(1e-3, 0.5, "0.01 to 0.5 in the paper"))
        lambda2: float = Field(0.05, ge=0, **log_range(1e-3, 0.5, "0.01 to 0.5 in the paper"))
        epsilon: float = Field(0.4, ge=0, le=1)
        flow: FlowConfig = FlowConfig()
        activation: Literal["relu", "leaky_relu", "tanh", "none"] = "relu"
        dueling: bool = True
        second_metric: bool = True
        proxies: Literal["shared", "own"] = "shared"
        augmentation: Literal["between", "printed", "none"] = "between"
        neighbour: int = Field(1, ge=1)
        spectrum: Literal["diagonal", "singular"] = "diagonal"
        across: Across = "sum"
        normalize: bool = True
        input: Annotated[Literal["raw", "unit", "sqrt_d"] | None, store_as_none("unit")] = None

    def __init__(self, config: Config, **parts: Unpack[MethodParts]) -> None:
        """Build one flow, or two ("dueling"), whose branches share the loss or have one each."""
        super().__init__(config, **parts)
        self.options = config
        dim = parts["embedding"].dim
        with use_substream("detreg.flow1"):
            self.flow1 = Flow(config.flow, dim=dim)
        self.flow2: Flow | None = None
        self.second_loss: Loss | None = None
        if config.dueling:
            with use_substream("detreg.flow2"):
                self.flow2 = Flow(config.flow, dim=dim)
            if config.second_metric and config.proxies == "own":
                self.second_loss = copy.deepcopy(self.loss)

    @classmethod
    def check(cls, trial: Trial) -> None:
        """Refuse a k-th neighbour that no batch has, because a class has too few images in it."""
        config, per_class = trial.method, trial.training.per_class
        assert isinstance(config, cls.Config)
        if config.augmentation != "none" and 1 < per_class <= config.neighbour:  # 1: random batches
            raise ValueError(
                f"method.neighbour must be below training.per_class ({per_class}), not "
                f"{config.neighbour}: no item of a batch has that many others of its class. Lower "
                "method.neighbour, or set method.augmentation: none."
            )

    def forward(
        self, features: Tensor, labels: Tensor, progress: Progress, generator: Generator
    ) -> DetRegState:
        """Run the flow of each branch on the batch's points z and on their augmented points."""
        z = self._prepare_flow_input(features)
        augmented, valid = self._augment_points(z, labels)  # `valid` is 1 or 0 for each item
        points = z if augmented is None else torch.cat([z, augmented])
        self.observations = {} if valid is None else {"with_neighbour": valid.mean()}
        query, r1 = self._run_branch(self.flow1, points, valid, "r1")
        if self.flow2 is None:
            return DetRegState(query=query, second=None, r1=r1, r2=None)
        second, r2 = self._run_branch(self.flow2, points, valid, "r2")
        return DetRegState(query=query, second=second, r1=r1, r2=r2)

    def embed(self, features: Tensor, geometry: Geometry | None = None) -> Tensor:
        query = self._normalize_after_flow(self.flow1(self._prepare_flow_input(features)).z)
        normalized = (geometry or self.loss.geometry).normalize
        return F.normalize(query, dim=-1) if normalized else query

    def terms(
        self, state: State, labels: Tensor, progress: Progress, generator: Generator
    ) -> dict[str, Term]:
        """Return the plain loss's terms, metric2 (of branch 2), r1 with λ₁ and r2 with −λ₂."""
        assert isinstance(state, DetRegState)
        terms = super().terms(state, labels, progress, generator)
        if state.second is not None and self.options.second_metric:
            loss = self.loss if self.second_loss is None else self.second_loss
            terms["metric2"] = Term(self.metric(state.second, labels, generator, loss))
            if self.second_loss is not None:
                for name, (penalty, weight) in self.second_loss.penalty().items():
                    terms[f"{name}2"] = Term(penalty, weight)
        terms["r1"] = Term(state.r1, self.options.lambda1)
        if state.r2 is not None:
            terms["r2"] = Term(state.r2, -self.options.lambda2)
        return terms

    def param_groups(self, phase: str) -> list[ParamGroup]:
        flows = [flow for flow in (self.flow1, self.flow2) if flow is not None]
        groups = [*super().param_groups(phase), ParamGroup.collect("auxiliary", *flows)]
        return groups if self.second_loss is None else [*groups, *self.second_loss.param_groups()]

    def _prepare_flow_input(self, features: Tensor) -> Tensor:
        """Return the head's output z[B, D], scaled as `input` says, after the activation."""
        z: Tensor = self.head(features)
        if self.options.input != "raw":
            z = F.normalize(z, dim=-1)
        if self.options.input == "sqrt_d":
            z = z * self.head.out_features**0.5
        return ACTIVATIONS[self.options.activation](z)

    def _normalize_after_flow(self, z: Tensor) -> Tensor:
        """L2-normalise z unless the geometry does it, because twice differs in the last bit."""
        geometry = self.loss.geometry
        normalized_later = geometry.normalize or geometry.kind == "cosine"
        return F.normalize(z, dim=-1) if self.options.normalize and not normalized_later else z

    def _run_branch(
        self, flow: Flow, points: Tensor, valid: Tensor | None, name: str
    ) -> tuple[Tensor, Tensor]:
        """Return a branch's query [B, D] and mean R over batch and valid augmented points."""
        output, across = flow(points), self.options.across
        if self.options.spectrum == "diagonal":
            r = compute_diagonal_r(output, across)
        else:
            r = compute_singular_r(flow, points, across)
        # measure R and log |det| over the batch's points, and R over the augmented ones
        batch = len(points) if valid is None else len(valid)  # the number of the batch's points
        measurements = {
            f"{name}_items": r[:batch].mean(),
            f"{name}_log_det": output.log_det[:batch].mean() / points.shape[-1],
        }
        if valid is None:
            mean = r.mean()
        else:
            extra = (r[batch:] * valid).sum()
            mean = (r[:batch].sum() + extra) / (batch + valid.sum())
            measurements[f"{name}_augmented"] = extra / valid.sum()
        self.observations |= {key: value.detach() for key, value in measurements.items()}
        return self._normalize_after_flow(output.z[:batch]), mean

    def _augment_points(self, z: Tensor, labels: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return each item's point towards its k-th neighbour, [B, D], and 1 if it has one, [B].

        Neighbours are of the item's class. An item without a k-th neighbour gets its own point and
        0, so that shapes do not depend on the labels. A negative step is away from the neighbour.
        """
        kind, rank = self.options.augmentation, self.options.neighbour
        if kind == "none" or rank > len(z):
            return None, None
        with torch.no_grad():
            itself = torch.arange(len(z), device=z.device)
            same_class = make_pairs(labels, labels, self_index=itself).pos > 0
            distance = squared_distance(z, z).masked_fill(~same_class, torch.inf)
            order = distance.argsort(dim=-1, stable=True)
            has_neighbour = same_class.sum(-1) >= rank
            neighbour = torch.where(has_neighbour, order[:, rank - 1], itself)
        direction = z[neighbour] - z
        step = self.options.epsilon if kind == "between" else -self.options.epsilon
        return z + step * direction, has_neighbour.to(z.dtype)


def compute_diagonal_r(output: FlowOutput, across: Across) -> Tensor:
    """Return R = 1/D Σ_i log(1 + λ_i) of each point, [N]; λ is the diagonal of a layer's Jacobian.

    The R of all layers are added or averaged; "product" takes one R of the whole flow. A flow
    without layers gives 0 (log 2 with "product").
    """
    dim = output.z.shape[-1]
    if across == "product":
        return F.softplus(output.log_diagonal).mean(-1)
    total = output.z.new_zeros(output.z.shape[:-1])
    for log_scale in output.log_scales:
        ones = dim - log_scale.shape[-1]  # passive dimensions, whose diagonal entry is 1
        total = total + (F.softplus(log_scale).sum(-1) + ones * math.log(2)) / dim
    return total / max(len(output.log_scales), 1) if across == "mean" else total


def compute_singular_r(flow: Flow, x: Tensor, across: Across) -> Tensor:
    """Return R = 1/D Σ_i log(1 + λ_i) of points x[N, D], [N], with exact singular values λ.

    The R of all layers are added or averaged; "product" takes one R of the whole flow. The cost is
    N decompositions of D × D per layer, and a backward pass for each row of each Jacobian. A step
    of 128 items and their augmented points takes 0.13 s per branch at D = 8 and 4 s at D = 64
    ("product": 1.1 s) on one CPU thread with 12 layers of width 64, and minutes at D = 512.
    """
    if across == "product":
        jacobian = vmap(jacrev(lambda row: flow(row).z))(x)
        return torch.log1p(torch.linalg.svdvals(jacobian)).mean(-1)
    total = x.new_zeros(x.shape[:-1])
    jacobians = compute_layer_jacobians(flow, x)
    for jacobian in jacobians:
        total = total + torch.log1p(torch.linalg.svdvals(jacobian)).mean(-1)
    return total / max(len(jacobians), 1) if across == "mean" else total


def compute_layer_jacobians(flow: Flow, x: Tensor) -> list[Tensor]:
    """Return the Jacobian of each layer of the flow at the input that x[N, D] gives the layer.

    The Jacobian of a coupling is [N, D, D], with the passive half of the dimensions first:

        [ I   0        ]
        [ A   diag e^s ]      A = ∂y_a/∂x_p

    The Jacobian of the final diagonal scaling is [D, D], in the order of x.
    """
    jacobians: list[Tensor] = []
    for coupling, active, passive in flow.walk(x):

        def transform(p: Tensor, a: Tensor, coupling: Coupling = coupling) -> tuple[Tensor, Tensor]:
            y, log_scale = coupling(a, p, None)
            return y, log_scale

        by_passive, log_scale = vmap(jacrev(transform, has_aux=True))(passive, active)
        diagonal = torch.cat([torch.ones_like(passive), log_scale.exp()], dim=-1)
        jacobian = torch.diag_embed(diagonal)
        jacobian[:, passive.shape[1] :, : passive.shape[1]] = by_passive
        jacobians.append(jacobian)
    if flow.scale is not None:
        jacobians.append(soft_clamp(flow.scale, flow.config.clamp).exp().diag())
    return jacobians
