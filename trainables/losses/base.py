"""The contract of losses: a loss gets scores and pair weights, never embeddings.

Shape legend: B queries · R references · D embedding dimensions · S label slots · `...` any
leading dimensions (T samples, two branches).

A method turns images into queries, computes `score[..., B, R]` (larger is closer) against the
references, and passes score and `Pairs` to the loss, so that a loss works with every method. If
`references()` returns proxies or centres, queries are compared with them, else with each other.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from trainables.config.optimization import Role
from trainables.config.registry import ComponentConfig, NamedConfig
from trainables.streams import seed_global_generator
from trainables.words.registry import Registry

if TYPE_CHECKING:
    from trainables.config import sections

    Trial = sections.Trial
else:  # so that the source digest of a loss or method does not cover all sections
    Trial = Any

LOSSES: "Registry[type[Loss]]" = Registry("losses", "trainables.losses")
LOG_OF_0 = -1e30  # stands for log 0: far below any logit, and finite, so that gradients are 0


@dataclass(frozen=True)
class Geometry:
    """Define how the score of two embeddings is computed.

    Attributes:
        kind: formula of the score s of query q and reference r:
            cosine, dot: ⟨q, r⟩; for cosine both are L2-normalised.
            l2: −‖q − r‖.
            l2sq: −‖q − r‖².
            hyperbolic: minus the geodesic distance, in the Poincaré ball of curvature −c, of the
                images of q and r under the exponential map at the origin. Embeddings stay tangent
                vectors.
        normalize: whether q and r are L2-normalised first.
        curvature: c > 0, of the hyperbolic kind.
        clip: length to which longer tangent vectors of the hyperbolic kind are shortened; None:
            no clipping.
    """

    kind: Literal["cosine", "dot", "l2", "l2sq", "hyperbolic"] = "cosine"
    normalize: bool = True
    curvature: float = 0.0
    clip: float | None = None

    @property
    def is_cosine(self) -> bool:
        """Whether the score is the cosine of the two embeddings."""
        return self.kind == "cosine" or (self.kind == "dot" and self.normalize)


@dataclass(frozen=True)
class BatchNeeds:
    """State which batches a loss needs from the sampler.

    Attributes:
        per_class: smallest number of images of each class in a batch.
        layout: "class_major" if the images of a class must be adjacent, equally many per class.
    """

    per_class: int = 1
    layout: Literal["any", "class_major"] = "any"


@dataclass(frozen=True)
class Traits:
    """State what a configured method requires of its loss, backbone and evaluation.

    Attributes:
        label_sets: `prepare` may give an item several labels (mixup, CutMix); losses that need
            one label for each item then refuse the trial.
        own_scores: the method computes the scores, so that a loss that takes embeddings is refused.
        plain_retrieval: retrieval compares the outputs of `embed` by the loss's geometry, even if
            the method trains on another score.
        second_token: the backbone needs a second token (`backbones/extra_token.py`); features are
            then [B, 2 F], the outputs of the class token and of the second token. "kept": the
            token stays in the sequence in evaluation. "discarded": in evaluation `embed` gets the
            features [N, F] of the model without it.
        scaled_start: `Method.scale_start` sets the scale of initial weights by the first features.
    """

    label_sets: bool = False
    own_scores: bool = False
    plain_retrieval: bool = True
    second_token: Literal["discarded", "kept"] | None = None
    scaled_start: bool = False


@dataclass(frozen=True)
class References:
    """Hold the learnable reference points of a loss, class by class.

    Attributes:
        vectors: [R, D].
        labels: [R], class of each vector.
        per_class: references per class, so that `view(classes, per_class, D)` is valid.
    """

    vectors: Tensor
    labels: Tensor
    per_class: int = 1


@dataclass(frozen=True)
class Pairs:
    """Weigh in [0, 1] which (query, reference) pairs attract and which repel.

    Attributes:
        pos, neg: [..., B, R]. An item's pair with itself has weight 0 in both. With label sets a
            pair is positive if the sets intersect.
        labels: [B, S] class indices of the queries; −1 fills unused slots.
        reference_labels: [R, S'] likewise.
    """

    pos: Tensor
    neg: Tensor
    labels: Tensor
    reference_labels: Tensor


@dataclass(frozen=True)
class ParamGroup:
    """Group parameters whose `role` decides their learning-rate multiplier and warm-up rule."""

    role: Role
    params: list[nn.Parameter] = field(default_factory=list)

    @classmethod
    def collect(cls, role: Role, *modules: nn.Module) -> "ParamGroup":
        """Return the group of all parameters of some modules."""
        return cls(role, [p for module in modules for p in module.parameters()])


def make_pairs(
    labels: Tensor, reference_labels: Tensor, *, self_index: Tensor | None = None
) -> Pairs:
    """Return which (query, reference) pairs share a class and which share none, as weights 0 or 1.

    Args:
        labels, reference_labels: class sets, int64 [B] or [B, S] and [R] or [R, S'], −1 if unused.
        self_index: [B], if the references are the batch: the column of each query among them. The
            pair of an item with itself then has weight 0 in both masks.
    """
    labels = labels.reshape(len(labels), -1)
    reference_labels = reference_labels.reshape(len(reference_labels), -1)
    query_slots = labels[:, None, :, None]
    equal = (query_slots == reference_labels[None, :, None, :]) & (query_slots >= 0)  # not −1
    pos = equal.flatten(2).any(-1)
    neg = ~pos
    if self_index is not None:
        is_other = self_index[:, None] != torch.arange(pos.shape[1], device=pos.device)
        pos, neg = pos & is_other, neg & is_other
    return Pairs(pos.float(), neg.float(), labels, reference_labels)


class Loss(nn.Module):
    """Base class of all losses of a number of training classes and embeddings of size `dim` = D.

    Random initial values come from torch's global generator, which the caller seeds.

    Attributes:
        REQUIRED: names that a registered class must define.
        options: the loss's `Config`.
        geometry: how the score is computed in training.
        batch: what the loss needs from the sampler.
        takes: "score" for `forward`, or "embeddings" for `compute_from_embeddings`, as losses of
            other libraries do. Such a loss refuses, in `check`, methods that compute their own
            score or give an item several labels.
        classifies: whether the references are one weight vector per class, so that `logits`
            classifies an image among the training classes.
    """

    Config: ClassVar[type[NamedConfig]]
    REVISION: ClassVar[int]
    REQUIRED: ClassVar[tuple[str, ...]] = ("Config", "REVISION")

    __call__: Callable[..., Tensor]
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
        """Raise a ValueError, with reason and remedy, if the loss does not fit trial or method."""

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the scalar loss, averaged over the leading dimensions of `score[..., B, R]`."""
        raise NotImplementedError

    def compute_from_embeddings(
        self, query: Tensor, labels: Tensor, *, generator: Generator | None = None
    ) -> Tensor:
        """Return the scalar loss of `query[..., B, D]`, labels [B, S], if `takes` is embeddings."""
        raise NotImplementedError

    def logits(self, score: Tensor) -> Tensor:
        """Return class logits [..., B, C], without margin, from scores against class weights."""
        return score

    @property
    def retrieval(self) -> Geometry:
        """Return how embeddings are compared in retrieval; by default as in training."""
        return self.geometry

    @property
    def logit_scale(self) -> float | None:
        """Return the factor of cosines in the loss's exponentials (1/τ of a softmax), or None."""
        return None

    def references(self) -> References | None:
        """Return the learnable references, or None if the batch is compared with itself."""
        return None

    def penalty(self) -> dict[str, tuple[Tensor, float]]:
        """Return terms that depend only on the loss's parameters: name → (value, weight)."""
        return {}

    def query_penalty(self, query: Tensor) -> dict[str, tuple[Tensor, float]]:
        """Return terms of the embeddings [..., B, D], such as norms: name → (value, weight)."""
        return {}

    def param_groups(self) -> list[ParamGroup]:
        """Return the loss's parameters, grouped by role."""
        group = ParamGroup.collect("proxies", self)
        return [group] if group.params else []


class PairedLoss(Loss):
    """Base of losses that pair up the images of a class, and so need one label for each image.

    The v-th image of a class in a batch is view v of the class.
    """

    batch = BatchNeeds(per_class=2, layout="class_major")

    @classmethod
    def check(cls, trial: Trial, method: Traits) -> None:
        check_one_label(trial, method, "pairs up the images of a class")


def number_within_class(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return which items have the same class, [B, B] bool, and each item's view, [B] int64.

    An item's view is its number, from 0, among the items of its class, so that images are paired
    rightly in any order. The class of an item is the first of its labels[B, S].
    """
    first = labels[:, 0]
    same_class = first[:, None] == first[None, :]
    return same_class, same_class.long().tril(-1).sum(-1)


def check_one_label(trial: Trial, method: Traits, reason: str) -> None:
    """Refuse a method that gives an image several labels; `reason` says what the loss does."""
    if method.label_sets:
        raise ValueError(
            f"method {trial.method.name} gives an image several labels, and loss {trial.loss.name} "
            f"{reason}. Turn mixing off or take another loss."
        )


def build_probe(config: NamedConfig, dim: int) -> Loss:
    """Build a configured loss for two classes, whose properties are checked before a trial."""
    with seed_global_generator(0, "probe"):
        return LOSSES[config.name](config, classes=2, dim=dim)
