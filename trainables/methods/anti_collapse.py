"""Anti-Collapse: the coding rate of embeddings or proxies keeps them spread over all directions.

Shape legend: B batch · D embedding dimensions · n points, which are proxies or the images.
"""

from typing import ClassVar, Literal, Unpack

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range
from trainables.losses import geometry as geometries
from trainables.losses.base import LOSSES, Loss, Trial
from trainables.methods.base import METHODS, MethodParts, Progress, State, Term, WeightedConfig
from trainables.methods.plain import Plain


@METHODS.register("anti_collapse")
class AntiCollapse(Plain):
    """Add to a loss a term that grows as points fall into few directions:

        L    = L_metric + weight · f(R(Q)),   f(R) = e^−R or −R
        R(Q) = ½ log det(I + κ Q Qᵀ),   κ = D / (n ε)

    Q [D, n] has n points of unit length as columns: the proxies of the batch's classes, all
    proxies, or the embeddings of the batch. R, the coding rate, is largest for orthogonal points.
    It is computed in float64 from the Cholesky factor of I + κ Qᵀ Q or I + κ Q Qᵀ, whichever is
    smaller; the two have one determinant. Retrieval is that of the plain loss.

    Deviations: within the authors' code, which `factor` covers, for proxies κ = n / (D ε), the
    inverse ratio. The coding rate of Yu et al. has ε² where the code has ε.

    e^−R fades: for 45 orthogonal proxies at D = 512 and ε = 0.5 it is 0.026 with the factor of the
    code, and 1e-31 with "rate". So take f "linear" with the factor "rate", and with images.

    Logged:
        anti_collapse: f(R), before its weight; e^−R near 0 says that the term has faded.
        coding_rate: R of the points, larger as they spread over more directions.

    Example:
        >>> list_term_weights(build_seeded_method("anti_collapse", "proxy_anchor"))
        {'metric': 1.0, 'anti_collapse': 286.0}

    References:
        Jiang et al., "Anti-collapse loss for deep metric learning based on coding rate metric",
        IEEE Transactions on Multimedia, 2024. https://arxiv.org/abs/2407.03106. The equations are
        those of the authors' code, criteria/antico.py of
        https://github.com/NUST-Machine-Intelligence-Laboratory/Anti-Collapse-Loss. R: Yu et al.,
        "Learning diverse and discriminative representations via the principle of maximal coding
        rate reduction", NeurIPS 2020. https://arxiv.org/abs/2006.08558
    """

    REVISION = 1
    classifies = False
    NEUTRAL: ClassVar[dict[str, object]] = {"weight": 0.0}
    WEIGHTS: ClassVar[dict[str, tuple[str, ...]]] = {"anti_collapse": ("weight",)}

    class Config(WeightedConfig):
        """weight: of f(R), relative to the metric loss; the scripts weigh e^−R by 1 and the loss by
            0.0035, which is a ratio of 286. With f "linear" begin at 0.01.
        points: "class_proxies", those of the classes in the batch; "proxies", all; or "images",
            the embeddings of the batch, with any loss.
        f: "exp", e^−R, or "linear", −R.
        factor: of proxies. "code": κ = n / (D ε); "rate": κ = D / (n ε), as it is of images.
        epsilon: ε.
        Sources: points, f, factor: the authors' scripts.
        """

        name: Literal["anti_collapse"] = "anti_collapse"
        weight: float = Field(286.0, ge=0, **log_range(1e-3, 1e3, "286 in the authors' scripts"))
        points: Literal["class_proxies", "proxies", "images"] = "class_proxies"
        f: Literal["exp", "linear"] = "exp"
        factor: Literal["code", "rate"] = "code"
        epsilon: float = Field(0.5, gt=0, le=100, **log_range(0.05, 5, "0.5 in the authors' code"))

    @classmethod
    def check(cls, trial: Trial) -> None:
        """Refuse points that are proxies with a loss that has none."""
        config, name = trial.method, trial.loss.name
        assert isinstance(config, cls.Config)
        if config.points != "images" and LOSSES[name].references is Loss.references:
            raise ValueError(
                f"method anti_collapse with points {config.points} needs a loss with proxies or "
                f"centres, not {name}. Take such a loss, or set method.points to images and "
                "method.f to linear."
            )

    def __init__(self, config: Config, **parts: Unpack[MethodParts]) -> None:
        super().__init__(config, **parts)
        self.options = config

    def terms(
        self, state: State, labels: Tensor, progress: Progress, generator: Generator
    ) -> dict[str, Term]:
        """Return the plain loss's terms and "anti_collapse"."""
        terms = super().terms(state, labels, progress, generator)
        points = geometries.normalize_to_unit(self._get_points(state.query, labels))
        count, dim = points.shape
        ratio = dim / count
        if self.options.points != "images" and self.options.factor == "code":
            ratio = count / dim
        rate = compute_coding_rate(points, ratio / self.options.epsilon)
        self.observations = {"coding_rate": rate.detach()}
        value = (-rate).exp() if self.options.f == "exp" else -rate
        terms["anti_collapse"] = Term(value, self.options.weight)
        return terms

    def _get_points(self, query: Tensor, labels: Tensor) -> Tensor:
        """Return the points [n, D] of which the rate is computed, not normalised."""
        if self.options.points == "images":
            return query
        references = self.loss.references()
        assert references is not None, "refused by `check`"
        if self.options.points == "proxies":
            return references.vectors
        return references.vectors[torch.isin(references.labels, labels)]


def compute_coding_rate(points: Tensor, factor: float) -> Tensor:
    """Return ½ log det(I + factor · Q Qᵀ) ≥ 0 for the rows of points[n, D] as columns of Q."""
    rows = points.double()
    gram = rows @ rows.mT if len(rows) <= rows.shape[1] else rows.mT @ rows
    matrix = torch.eye(len(gram), dtype=gram.dtype, device=gram.device) + factor * gram
    factors: Tensor = torch.linalg.cholesky(matrix).diagonal()
    return factors.log().sum().to(points.dtype)
