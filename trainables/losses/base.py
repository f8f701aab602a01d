"""The seam, loss side: a loss sees scores and pair weights, never embeddings.

Shape legend: B queries · R references · D embedding dimensions · S label slots · `...` any
leading dimensions (T samples, two branches).

A method turns images into queries, computes `score[..., B, R]` (larger is closer) against the
references, and hands score and `Pairs` to the loss. Whatever a method does to embeddings, the
loss needs no edit. A loss with `references()` (proxies, centres) compares queries with them;
a loss without compares the batch with itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from trainables import streams
from trainables.config.optimization import Role
from trainables.config.registry import ComponentConfig, NamedConfig, Registry

if TYPE_CHECKING:
    from trainables.config.sections import Trial

LOSSES: Registry[type[Loss]] = Registry("losses", "trainables.losses")


@dataclass(frozen=True)
class Geometry:
    """How closeness is measured. `kind`:

    cosine, dot  s = ⟨q, r⟩, cosine after L2 normalisation of both
    l2           s = −‖q − r‖
    l2sq         s = −‖q − r‖²
    hyperbolic   s = −(geodesic distance in the Poincaré ball of curvature −c) of the points
                 to which the exponential map at the origin takes q and r, each shortened to
                 length `clip` first. An embedding stays the tangent vector q.

    curvature: c > 0; clip: None for no clipping. Both for the hyperbolic kind alone.
    """

    kind: Literal["cosine", "dot", "l2", "l2sq", "hyperbolic"] = "cosine"
    normalize: bool = True
    curvature: float = 0.0
    clip: float | None = None


@dataclass(frozen=True)
class BatchNeeds:
    """What a loss asks of the sampler.

    per_class: least number of images of each class in a batch (1: none needed).
    layout: "class_major" where images of one class must stand together, equally many each.
    """

    per_class: int = 1
    layout: Literal["any", "class_major"] = "any"


@dataclass(frozen=True)
class Traits:
    """What a method, as it is configured, asks of its loss, backbone and evaluation.

    label_sets: `prepare` may give an item several labels (mixup, CutMix); losses that need one
        label an item then refuse the trial.
    own_scores: the loss must take scores that the method computes, so that one which takes
        embeddings cannot.
    plain_retrieval: retrieval compares what `embed` gives by the loss's geometry alone, whatever
        score the method trains on.
    second_token: the backbone must have a second token (`backbones/second_token.py`); features
        are then [B, 2 F], the class token's output and that one's. "kept": it stays in the
        sequence in retrieval and classification; "discarded": there `embed` gets [N, F] of the
        model without it.
    """

    label_sets: bool = False
    own_scores: bool = False
    plain_retrieval: bool = True
    second_token: Literal["discarded", "kept"] | None = None


@dataclass(frozen=True)
class References:
    """Learnable reference points: `vectors[R, D]`, `labels[R]`, class-major.

    per_class: references per class, so that `view(classes, per_class, D)` is valid.
    """

    vectors: Tensor
    labels: Tensor
    per_class: int = 1


@dataclass(frozen=True)
class Pairs:
    """Which (query, reference) pairs attract and which repel, as weights in [0, 1].

    pos, neg: [..., B, R]. The item itself is in neither. With label sets a pair is positive
    if the sets meet.
    labels: [B, S] class indices of the queries; −1 fills unused slots.
    reference_labels: [R, S'] likewise.
    """

    pos: Tensor
    neg: Tensor
    labels: Tensor
    reference_labels: Tensor


@dataclass(frozen=True)
class ParamGroup:
    """Parameters that share a learning-rate multiplier and a warm-up rule, by `role`."""

    role: Role
    params: list[nn.Parameter] = field(default_factory=list)


def make_pairs(
    labels: Tensor, reference_labels: Tensor, *, self_index: Tensor | None = None
) -> Pairs:
    """Return pair weights from label sets.

    Args:
        labels: [B] or [B, S] int64, −1 for an unused slot.
        reference_labels: [R] or [R, S'].
        self_index: [B] column of each query's own entry among the references, if the
            references are the batch; that pair gets weight 0 in both masks. By index, so that
            duplicates of an image still count.
    """
    labels = labels[:, None] if labels.dim() == 1 else labels
    reference_labels = (
        reference_labels[:, None] if reference_labels.dim() == 1 else reference_labels
    )
    if labels.shape[1] == reference_labels.shape[1] == 1:
        pos = (labels == reference_labels.T) & (labels >= 0)
    else:
        meet = labels[:, None, :, None] == reference_labels[None, :, None, :]
        pos = (meet & (labels[:, None, :, None] >= 0)).flatten(2).any(-1)
    neg = ~pos
    if self_index is not None:
        itself = self_index[:, None] == torch.arange(pos.shape[1], device=pos.device)
        pos, neg = pos & ~itself, neg & ~itself
    return Pairs(pos.float(), neg.float(), labels, reference_labels)


class Loss(nn.Module):
    """Base class of all losses.

    Args of subclasses: `config`, and keyword `classes` (training classes) and `dim` (D).
    Random initial values come from torch's global generator, which the caller seeds.

    options: its `Config`. geometry: how closeness is measured in training. batch: what it asks of
        the sampler.
    takes: "score", by `forward`; or "embeddings", by `compute_from_embeddings`, for losses of other
        libraries. The latter cannot go with a method that has a score of its own or gives an
        item several labels; such a loss refuses those in `check`.
    classifies: whether its references are one weight vector a class, so that `logits` tells an
        image's class among those that trained.
    """

    Config: ClassVar[type[NamedConfig]]
    REVISION: ClassVar[int]

    options: Any
    geometry: Geometry = Geometry()
    batch: BatchNeeds = BatchNeeds()
    takes: ClassVar[Literal["score", "embeddings"]] = "score"
    classifies: ClassVar[bool] = False

    def __init__(self, config: ComponentConfig, *, classes: int, dim: int) -> None:
        super().__init__()
        self.options, self.classes, self.dim = config, classes, dim

    @classmethod
    def check(cls, trial: Trial, method: Traits) -> None:
        """Refuse, before anything runs, a trial that this loss cannot be part of.

        Args:
            method: what the trial's method asks of a loss.

        Raises:
            ValueError: "<what is expected>, not <what was found>: <reason or remedy>".
        """

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return scalar loss; leading dimensions of `score[..., B, R]` are averaged over."""
        raise NotImplementedError

    def compute_from_embeddings(
        self, query: Tensor, labels: Tensor, *, generator: Generator | None = None
    ) -> Tensor:
        """Return scalar loss of `query[..., B, D]` and labels [B, S], if the loss takes
        embeddings."""
        raise NotImplementedError

    def logits(self, score: Tensor) -> Tensor:
        """score [..., B, C] of queries against the class weights, in the order of classes → as many
        numbers in the order in which the loss takes classes to be likely, largest first. No margin,
        which is of training."""
        return score

    @property
    def retrieval(self) -> Geometry:
        """How embeddings are compared after training; as in training, unless a loss says else."""
        return self.geometry

    @property
    def logit_scale(self) -> float | None:
        """By how much a cosine counts in the loss's own exponentials, 1/τ of a softmax; None where
        there is no such number."""
        return None

    def references(self) -> References | None:
        """Return learnable references, or None: the batch is compared with itself."""
        return None

    def penalty(self) -> dict[str, tuple[Tensor, float]]:
        """Return terms that depend on the loss's parameters alone: name → (value, weight)."""
        return {}

    def query_penalty(self, query: Tensor) -> dict[str, tuple[Tensor, float]]:
        """Return terms that depend on the embeddings [..., B, D] themselves, of which `forward`
        sees the scores alone (their norms, say): name → (value, weight)."""
        return {}

    def param_groups(self) -> list[ParamGroup]:
        params = list(self.parameters())
        return [ParamGroup("proxies", params)] if params else []


def resolve_geometry(config: NamedConfig, dim: int) -> Geometry:
    """Return the geometry of the loss that `config` says, which may depend on its options; for
    checks before anything runs. Builds the loss, for two classes."""
    with streams.seed_global_generator(0, "geometry"):
        loss = LOSSES[config.name](config, classes=2, dim=dim)
    return loss.geometry
