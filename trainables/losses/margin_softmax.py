"""CosFace, ArcFace and SphereFace: a softmax over cosines with a margin on the target."""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range, range_between
from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, Pairs
from trainables.losses.geometry import safe_sqrt
from trainables.losses.proxies import ClassLoss, Init
from trainables.losses.softmax import soft_cross_entropy


class MarginConfig(NamedConfig):
    """scale: factor s of the logits.
    init: initial class weights, see `draw_initial_proxies`; the papers state none, so the
        default is NormSoftmax's.
    Sources: scale: the papers' experiments."""

    scale: float = Field(64.0, gt=0, le=1024)
    init: Init = "uniform"


class MarginSoftmax(ClassLoss):
    """Compute softmax cross-entropy with a margin on the classes of the query:

        L = −1/B Σ_i Σ_j t_ij log softmax_j(s · ψ_ij),
        ψ_ij = ψ(c_ij) for classes j of item i, c_ij for all others,   c_ij = cos(x_i, w_j)

    There is one weight vector w per class and no bias. Subclasses define ψ(c) ≤ c.

    With label sets every class of the set gets the margin, and t_i is uniform over the set. With
    fractional pair weights w, t_i is proportional to the weights, and ψ_ij = c + w (ψ(c) − c). A
    query without a positive class counts as 0. A method may replace the cosine by another score,
    which must lie in [−1, 1] for the angular losses.
    """

    classifies = True
    VECTORS = "weights"
    options: MarginConfig

    @property
    def logit_scale(self) -> float:
        return self.options.scale

    def target(self, cosine: Tensor) -> Tensor:
        """Return ψ(c), elementwise, with finite value and gradient on [−1, 1] and just beyond."""
        raise NotImplementedError

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        # lerp is exact at weights 0 and 1.
        logits = torch.lerp(score, self.target(score), pairs.pos.to(score.dtype))
        return soft_cross_entropy(self.options.scale * logits, pairs.pos)


@LOSSES.register("cosface")
class CosFace(MarginSoftmax):
    """Subtract a margin m from the cosine of the target class; `MarginSoftmax` with

        ψ(c) = c − m

    Example:
        >>> loss = CosFace(CosFace.Config(scale=4), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.233

    References:
        Wang et al., "CosFace: Large margin cosine loss for deep face recognition", CVPR 2018,
        Eq. 4. https://arxiv.org/abs/1801.09414
    """

    REVISION = 1

    class Config(MarginConfig):
        """margin: m; 0.35 is the paper's choice, at the scale 64 of its experiments."""

        name: Literal["cosface"] = "cosface"
        margin: float = Field(0.35, ge=0, le=2, **range_between(0, 0.6, "0.35 in the paper"))

    options: Config

    def target(self, cosine: Tensor) -> Tensor:
        return cosine - self.options.margin


@LOSSES.register("arcface")
class ArcFace(MarginSoftmax):
    """Add a margin m to the angle of the target class; `MarginSoftmax` with

        ψ(cos θ) = cos(θ + m) = cos θ cos m − sin θ sin m

    No arccosine is computed. ψ'(c) grows without bound towards c = 1, but the gradient of the
    cosine vanishes there as sin θ; at |c| ≥ 1, sin θ counts as 0 with gradient 0.

    Deviations: beyond θ = π − m the printed cos(θ + m) rises again. With `beyond` "linear", as in
    the public code and in pytorch-metric-learning, ψ = cos θ − m sin m there, which keeps falling
    but has a step at π − m. "printed" is the equation without this change.

    Example:
        >>> loss = ArcFace(ArcFace.Config(scale=4), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.245

    References:
        Deng et al., "ArcFace: Additive angular margin loss for deep face recognition", CVPR 2019,
        Eq. 3. https://arxiv.org/abs/1801.07698
    """

    REVISION = 1

    class Config(MarginConfig):
        """margin: m, in radians; 0.5 is the paper's value, at the scale 64.

        beyond: form of ψ where θ + m > π, "linear" or "printed"; see the class.
        Sources: beyond: the public code.
        """

        name: Literal["arcface"] = "arcface"
        margin: float = Field(0.5, ge=0, le=math.pi, **range_between(0, 0.6, "0.5 in the paper"))
        beyond: Literal["linear", "printed"] = "linear"

    options: Config

    def target(self, cosine: Tensor) -> Tensor:
        """Return ψ = cos(θ + m), but cos θ − m sin m beyond θ = π − m if `beyond` is "linear"."""
        m = self.options.margin
        cos_m, sin_m = math.cos(m), math.sin(m)
        sine = safe_sqrt((1 - cosine) * (1 + cosine), floor=0.0)
        shifted = cosine * cos_m - sine * sin_m
        if self.options.beyond == "printed":
            return shifted
        return torch.where(cosine >= -cos_m, shifted, cosine - m * sin_m)


@LOSSES.register("sphereface")
class SphereFace(MarginSoftmax):
    """Multiply the angle of the target class by m (A-Softmax); `MarginSoftmax` with

        φ(cos θ) = (−1)^k cos(m θ) − 2k,   k = ⌊m θ/π⌋,
        ψ = (λ cos θ + φ) / (1 + λ)

    Deviations: the paper multiplies logits by the length ‖x‖ of the embedding; a loss here gets
    scores, not embeddings, so that a constant scale s replaces it: the feature-normalised form of
    the authors' later work, without its detached gradients. λ is the relaxation of the public
    code, where it falls from 1000 to 5 in training; here it is constant. m may be any positive
    number; at m = 1 the loss is NormSoftmax. At |c| ≥ 1, θ counts as 0 or π with gradient 0.

    Example:
        >>> loss = SphereFace(SphereFace.Config(scale=4), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.135

    References:
        Liu et al., "SphereFace: Deep hypersphere embedding for face recognition", CVPR 2017,
        Eq. 7. https://arxiv.org/abs/1704.08063
        Liu et al., "SphereFace revived: Unifying hyperspherical face recognition", TPAMI 2022.
    """

    REVISION = 1

    class Config(MarginConfig):
        """scale: s; 30 is the value of the later work's public code.
        margin: m, factor of the angle; 1.5 is the value of the later work's public code. The
            CVPR paper's 4 belongs to free lengths and a falling λ: use it with relaxation ≥ 5.
        relaxation: λ.
        Sources: scale: the later work's code; relaxation: this project, off.
        """

        name: Literal["sphereface"] = "sphereface"
        scale: float = Field(30.0, gt=0, le=1024, **log_range(8, 64, "around the default"))
        margin: float = Field(1.5, gt=0, le=8, **range_between(1.1, 2, "around the default"))
        relaxation: float = Field(0.0, ge=0, le=1e6)

    options: Config

    def target(self, cosine: Tensor) -> Tensor:
        """Return ψ = (λ cos θ + φ) / (1 + λ), φ = (−1)^k cos(m θ) − 2k with k = ⌊m θ/π⌋."""
        m, relaxation = self.options.margin, self.options.relaxation
        angle = m * safe_arccos(cosine)
        k = (angle.detach() / math.pi).floor()
        phi = (1 - 2 * k.remainder(2)) * angle.cos() - 2 * k
        return (relaxation * cosine + phi) / (1 + relaxation)


def safe_arccos(cosine: Tensor) -> Tensor:
    """Return arccos c in [0, π], with gradient 0 at |c| ≥ 1, where that of acos is infinite."""
    inside = cosine.abs() < 1
    angle = torch.where(inside, cosine, torch.zeros_like(cosine)).acos()
    edge = torch.where(cosine > 0, torch.zeros_like(cosine), torch.full_like(cosine, math.pi))
    return torch.where(inside, angle, edge)
