"""HIER: learnable ancestors in hyperbolic space, which a hierarchy of the images shares.

Shape legend: B batch · F features · D embedding dimensions · H ancestors · N points, which are the
images of the batch or the ancestors · T triplets.
"""

import math
from typing import ClassVar, Literal, Unpack

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Generator, Tensor, nn

from trainables.config.ranges import log_range, range_between
from trainables.losses import geometry as geometries
from trainables.losses.base import ParamGroup, Trial, make_pairs
from trainables.methods.base import METHODS, MethodParts, Progress, State, Term, WeightedConfig
from trainables.methods.plain import Plain
from trainables.streams import use_substream

NEIGHBOURS = 20  # the value of the authors' scripts


@METHODS.register("hier")
class HIER(Plain):
    """Add to any loss a hierarchy: similar points share a nearer ancestor than dissimilar ones:

        L    = L_metric + weight · (R(z) + R(ρ))
        R(x) = mean over triplets (i, j, k) of [a ≠ b] · ( [d(x_i, ρ_a) − d(x_i, ρ_b) + δ]₊
                 + [d(x_j, ρ_a) − d(x_j, ρ_b) + δ]₊ + [d(x_k, ρ_b) − d(x_k, ρ_a) + δ]₊ )
        a    = argmax_h g_h − max(d(x_i, ρ_h), d(x_j, ρ_h)) / τ
        b    = argmax_h g'_h − max(d(x_i, ρ_h), d(x_j, ρ_h), d(x_k, ρ_h)) / τ

    z: the embeddings of the batch. ρ: H learnable points, the ancestors ("hierarchical proxies").
    d: the geodesic distance in the Poincaré ball, `geometry.hyperbolic_distance`, HypViT's. ρ_a is
    the lowest common ancestor of i and j, ρ_b that of all three; g and g' are Gumbel noise. The
    gradient of the choice is that of a softmax in place of argmax (straight-through).

    Triplets: N(i) are the n points nearest to i, i itself among them; points of i's class come
    before others. i and j are mutual neighbours if each is in the other's N. For each i with two
    mutual neighbours or more, `draws` times: j is drawn from these and k from all other points but
    i. In R(ρ) the points are the ancestors, which have no classes and may be their own ancestors.

    Retrieval uses z, compared as the loss compares. The ancestors train with the `auxiliary`
    learning rate (× 50 in the authors' code, the classes' proxies × 10,000).

    Logged:
        images, ancestors: R of these points, R(z) or R(ρ), before its weight.
        anchors: the share of images with triplets.

    Cost: each term keeps about ten tensors of T H numbers, T = `draws` · N. With the defaults a
    step takes 0.7 GB and 2.4 s of one CPU core, mostly for R(ρ); lower `draws` or `ancestors`.

    Deviations from the authors' code: there k may be i itself. There all gradients of a point are
    scaled by (1 − c‖x‖²)²/4, which adaptive optimisers nearly undo. There retrieval compares by d,
    also if the loss compares cosines; where all embeddings are longer than `clip`, both give the
    same ranking. Take the loss hypvit for retrieval by d. There the head has a layer norm.

    Example:
        >>> list_term_weights(build_seeded_method("hier", "proxy_anchor"))
        {'metric': 1.0, 'images': 0.5, 'ancestors': 0.5}

    References:
        Kim, Jeong and Kwak, "HIER: Metric learning beyond class labels via hierarchical
        regularization", CVPR 2023. https://arxiv.org/abs/2212.14258. The equations are those of
        the authors' code, hier/losses.py of https://github.com/tjddus9597/HIER-CVPR23.
    """

    REVISION = 1
    classifies = False
    NEUTRAL: ClassVar[dict[str, object]] = {"weight": 0.0}
    WEIGHTS: ClassVar[dict[str, tuple[str, ...]]] = {
        "images": ("weight",),
        "ancestors": ("weight",),
    }

    class Config(WeightedConfig):
        """weight: of both terms; 0 turns them off. The default has no measurable effect:
            22.75 MAP@R, the plain loss 22.65 (validation, whole networks on typefaces, two seeds).
            A `weights: relative` of 0.1 gives 23.22.
        ancestors: H.
        neighbours: n, below the batch size; None: 20, or half of the points if that is fewer.
        draws: triplets of each point with two mutual neighbours or more.
        temperature: τ. margin: δ.
        curvature: c; the ball has curvature −c. clip: length to which longer tangent vectors are
            shortened.
        Sources: neighbours, draws, clip: the authors' scripts.
        """

        name: Literal["hier"] = "hier"
        weight: float = Field(0.5, ge=0, **log_range(0.05, 2, "0.5 and 1 in the authors' code"))
        ancestors: int = Field(
            512, ge=8, le=65536, **log_range(64, 1024, "512 in the authors' code", whole=True)
        )
        neighbours: int | None = Field(None, ge=3, le=65536)
        draws: int = Field(50, ge=1, le=10000)
        temperature: float = Field(
            0.1, gt=0, le=10, **log_range(0.02, 0.5, "0.1 in the authors' code")
        )
        margin: float = Field(0.1, ge=0, le=10, **range_between(0, 0.5, "0.1 in the authors' code"))
        curvature: float = Field(0.1, gt=0, le=10, **log_range(0.01, 1, "0.1 in the authors' code"))
        clip: float = Field(2.3, gt=0, le=100)

        @model_validator(mode="after")
        def check_neighbours(self) -> "HIER.Config":
            if self.neighbours is not None and self.neighbours >= self.ancestors:
                raise ValueError(
                    f"neighbours {self.neighbours} must be below ancestors {self.ancestors}, or "
                    "every ancestor is a neighbour of every other. Lower neighbours."
                )
            return self

    @classmethod
    def check(cls, trial: Trial) -> None:
        """Refuse a number of neighbours with which a batch has no triplets."""
        config, size = trial.method, trial.training.batch_size
        assert isinstance(config, cls.Config)
        count = count_neighbours(config.neighbours, size)
        if not 3 <= count < size:
            raise ValueError(
                f"method hier needs 3 neighbours or more, and fewer than images in a batch, not "
                f"{count} of {size}. Change method.neighbours or training.batch_size."
            )

    def __init__(self, config: Config, **parts: Unpack[MethodParts]) -> None:
        """Draw the ancestors as the authors' code does, from N(0, (0.9 r)²/D) with the clip r."""
        super().__init__(config, **parts)
        self.options = config
        dim = parts["embedding"].dim
        with use_substream("hier.ancestors"):
            points = torch.randn(config.ancestors, dim) * (0.9 * config.clip / math.sqrt(dim))
        self.ancestors = nn.Parameter(points)

    def terms(
        self, state: State, labels: Tensor, progress: Progress, generator: Generator
    ) -> dict[str, Term]:
        """Return the plain loss's terms, and those of the triplets of images and of ancestors."""
        terms = super().terms(state, labels, progress, generator)
        z, options = state.query, self.options
        with torch.no_grad():
            similarity = (-self._compute_distance(z, z)).exp() + make_pairs(labels, labels).pos
        triplets = draw_triplets(similarity, options.neighbours, options.draws, generator)
        self.observations = {"anchors": z.new_tensor(triplets.shape[1] / options.draws / len(z))}
        distance = self._compute_distance(z, self.ancestors)
        images = self._compute_hierarchy_loss(distance, triplets, generator)
        distance = self._compute_distance(self.ancestors, self.ancestors)
        similarity = (-distance.detach()).exp()
        triplets = draw_triplets(similarity, options.neighbours, options.draws, generator)
        ancestors = self._compute_hierarchy_loss(distance, triplets, generator)
        terms["images"] = Term(images, options.weight)
        terms["ancestors"] = Term(ancestors, options.weight)
        return terms

    def param_groups(self, phase: str) -> list[ParamGroup]:
        return [*super().param_groups(phase), ParamGroup("auxiliary", [self.ancestors])]

    def _compute_distance(self, x: Tensor, y: Tensor) -> Tensor:
        return geometries.hyperbolic_distance(x, y, self.options.curvature, self.options.clip)

    def _compute_hierarchy_loss(
        self, distance: Tensor, triplets: Tensor, generator: Generator
    ) -> Tensor:
        """Return R of points with distances [N, H] to the ancestors; 0 without triplets [3, T]."""
        if triplets.shape[1] == 0:
            return distance.sum() * 0
        i, j, k = (distance[rows] for rows in triplets)  # [T, H] each
        farthest = torch.maximum(i, j)
        pair = self._choose_ancestor(farthest, generator)
        triple = self._choose_ancestor(torch.maximum(farthest, k), generator)
        contrast, margin = pair - triple, self.options.margin
        first, second, third = ((d * contrast).sum(-1) for d in (i, j, k))  # d(·, ρ_a) − d(·, ρ_b)
        loss = F.relu(first + margin) + F.relu(second + margin) + F.relu(margin - third)
        return torch.where(pair.argmax(-1) != triple.argmax(-1), loss, 0).mean()

    def _choose_ancestor(self, farthest: Tensor, generator: Generator) -> Tensor:
        """Return [T, H], 1 at a random near ancestor and 0 elsewhere, with a softmax's gradient.

        The nearest of the distances `farthest`[T, H] is the most likely.
        """
        # torch.rand is several times as fast as a draw of exponentials
        uniform = torch.rand(
            farthest.shape, generator=generator, dtype=farthest.dtype, device=farthest.device
        )
        limits = torch.finfo(uniform.dtype)
        gumbel = -(-uniform.clamp(limits.tiny, 1 - limits.eps / 2).log()).log()
        soft = (gumbel - farthest / self.options.temperature).softmax(-1)
        hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1)
        return hard - soft.detach() + soft


def count_neighbours(neighbours: int | None, points: int) -> int:
    """Return n for a number of points: `neighbours`, or 20 but at most half of the points."""
    return min(NEIGHBOURS, points // 2) if neighbours is None else neighbours


def draw_triplets(
    similarity: Tensor, neighbours: int | None, draws: int, generator: Generator
) -> Tensor:
    """Draw triplets (i, j, k) of points: j is a mutual neighbour of i, and k is not.

    Args:
        similarity: [N, N]. neighbours: see `HIER.Config`.
        draws: triplets for each i that has at least two mutual neighbours, and others.

    Returns:
        [3, T], indices of points; T = 0 if no point has such neighbours.
    """
    count = min(count_neighbours(neighbours, len(similarity)), len(similarity))
    near = torch.zeros_like(similarity, dtype=torch.bool)
    near.scatter_(1, similarity.topk(count).indices, True)
    others = ~torch.eye(len(near), dtype=torch.bool, device=near.device)
    mutual = near & near.mT & others
    distant = ~mutual & others
    anchors = ((mutual.sum(1) > 1) & distant.any(1)).nonzero().squeeze(1)
    if len(anchors) == 0:
        return anchors.expand(3, 0)
    drawn = []
    for candidates in (mutual[anchors], distant[anchors]):
        share = torch.rand(
            (len(anchors), draws), generator=generator, dtype=torch.float64, device=near.device
        )
        counts = candidates.sum(1, keepdim=True)
        number = torch.minimum((share * counts).long(), counts - 1)
        columns = candidates.int().argsort(dim=1, descending=True, stable=True)
        drawn.append(columns.gather(1, number).flatten())
    return torch.stack([anchors.repeat_interleave(draws), *drawn])
