"""The seam, method side: a method owns everything before the score.

Shape legend: B batch · F pooled backbone features · D embedding dimensions · E layout of a
query (D, or more where a method's own score needs more, as IDML's semantic + uncertainty)
· T samples · R references.

The training step, in the order in which the core runs it:

    batch    = method.prepare(batch, generator)            mixup, CutMix: images and label sets
    features = backbone(batch.inputs)                      [B, F]
    state    = method(features, batch.labels, progress, generator)
    terms    = method.terms(state, batch.labels, progress, generator)
    loss     = Σ weight · value,  backward
    observed = method.observed()                           logged, part of nothing

An evaluation embeds images by `embed` and compares them by `compare_embeddings`; a classification
answers by `compute_class_logits`. The head, the method and the loss compute in float32 also where
the backbone runs in autocast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor, nn

from trainables.config.registry import ComponentConfig, NamedConfig, Registry
from trainables.losses import geometry as geometries
from trainables.losses.base import Geometry, Loss, ParamGroup, Traits, make_pairs
from trainables.methods.principal import Principal, find_principal_start

if TYPE_CHECKING:
    from trainables.config.network import EmbeddingConfig
    from trainables.config.sections import Trial

METHODS: Registry[type[Method]] = Registry("methods", "trainables.methods")


class Term(NamedTuple):
    """One summand of the loss. Value and weight stay apart so that weight 0 stays visible."""

    value: Tensor
    weight: float | Tensor = 1.0


@dataclass(frozen=True)
class Progress:
    """Where training stands.

    phase: "warmup" while roles are held (the backbone, or as the schedule says), else "main", or
        a method's own phase name.
    fraction: share of all optimiser steps already taken, in [0, 1).
    """

    phase: str = "main"
    epoch: int = 0
    step: int = 0
    fraction: float = 0.0


@dataclass(frozen=True)
class Batch:
    """inputs: [B, 3, H, W] float images, or [B, F] cached features. labels: [B, S] int64."""

    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class State:
    """What one forward pass yields. Methods subclass it with tensors of their own.

    query: [..., B, E], what the metric loss compares.
    """

    query: Tensor


class MethodParts(TypedDict):
    """What every method is built of, by keyword.

    features: F, width of the pooled backbone features. embedding: size and initialisation of the
    embedding. loss: the base loss the method is attached to. classes: number of training classes.
    """

    features: int
    embedding: EmbeddingConfig
    loss: Loss
    classes: int


def read_as_none(default: object) -> Callable[[Any], Any]:
    """Return a validator that reads an option's default as None, so that the default, written out
    or not, is one trial."""
    return lambda value: None if value == default else value


class Method(nn.Module):
    """Base class of all methods, and the contract each of them keeps.

    Its hooks stand in the order in which they are called; a method overrides those that it needs.

        before a trial    check, describe_traits
        at its start      param_groups, fit
        at each step      prepare, forward, terms, which calls metric, score, as_query and
                          embedding_of; observed
        in evaluation     embed, score, as_query, measure

    Args:
        config: the method's own `Config`.
        parts: see `MethodParts`; the loss is kept as a submodule.

    Initial values come from torch's global generator, which the caller seeds
    (`streams.seed_global_generator`); a method of several parts draws each inside
    `streams.use_substream(name)`, so that the head starts alike in all methods.

    NEUTRAL names the options with which the method equals the plain loss, MEASURES what `measure`
    gives. classifies: whether its embeddings, compared with the class weights, are a classifier's
    answer.
    """

    Config: ClassVar[type[NamedConfig]]
    REVISION: ClassVar[int]
    NEUTRAL: ClassVar[dict[str, object]]
    MEASURES: ClassVar[tuple[str, ...]] = ()
    classifies: ClassVar[bool] = False

    # of version 0.1.0 → what took its place
    REMOVED_HOOKS: ClassVar[Mapping[str, str]] = {
        "label_sets": "describe_traits and Traits.label_sets",
        "own_scores": "describe_traits and Traits.own_scores",
        "second_token": "describe_traits and Traits.second_token",
        "answers_with_token": "describe_traits and Traits.second_token",
        "plain_retrieval": "describe_traits and Traits.plain_retrieval",
        "retrieval_score": "score",
        "logits": "embed and score",
        "observed_gradients": "observed",
        "metric_of": "metric and its argument `loss`",
    }

    def __init__(self, config: ComponentConfig, **parts: Unpack[MethodParts]) -> None:
        super().__init__()
        self.loss, self.classes = parts["loss"], parts["classes"]
        self.traits = self.describe_traits(config)
        self.principal: Principal = find_principal_start

    @classmethod
    def check(cls, trial: Trial) -> None:
        """Refuse, before anything runs, a trial that this method cannot be part of.

        Raises:
            ValueError: "<what is expected>, not <what was found>: <reason or remedy>".
        """

    @classmethod
    def describe_traits(cls, config: ComponentConfig) -> Traits:
        """Return what this method, as it is configured, asks of its loss, backbone and evaluation.

        Here: the loss must take scores if the method has a score or a comparison of its own, and
        retrieval is plain if it has no score of its own.
        """
        base = (Method.score, Method.as_query, Method.metric)
        return Traits(
            own_scores=(cls.score, cls.as_query, cls.metric) != base,
            plain_retrieval=cls.score is Method.score,
        )

    def param_groups(self, phase: str) -> list[ParamGroup]:
        """Return the parameters of head, method and loss by role; phases may hold some back."""
        raise NotImplementedError

    def fit(self, features: Tensor) -> None:
        """Start from data: called once, before the first step, with the training features
        [N, F], if `embedding.init` is "pca". `self.principal` finds their principal directions,
        or knows them from the trials before."""
        raise NotImplementedError

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Change images and label sets before the backbone sees them (mixup, CutMix)."""
        return batch

    def forward(
        self, features: Tensor, labels: Tensor, progress: Progress, generator: torch.Generator
    ) -> State:
        """Turn features [B, F] into queries and whatever else the terms need."""
        raise NotImplementedError

    def terms(
        self, state: State, labels: Tensor, progress: Progress, generator: torch.Generator
    ) -> dict[str, Term]:
        """Return all summands by name.

        "metric" is the base loss; those of `Loss.penalty` and of `Loss.query_penalty` follow it.
        """
        terms = {"metric": Term(self.metric(state.query, labels, generator))}
        penalties = self.loss.penalty() | self.loss.query_penalty(self.embedding_of(state.query))
        for name, (value, weight) in penalties.items():
            terms[name] = Term(value, weight)
        return terms

    def metric(
        self, query: Tensor, labels: Tensor, generator: torch.Generator, loss: Loss | None = None
    ) -> Tensor:
        """Return the base loss of `query[..., B, E]`, against its references or the batch itself.

        Args:
            loss: another than the base loss, for a method whose branches have one each.
        """
        loss = self.loss if loss is None else loss
        if loss.takes == "embeddings":
            return loss.compute_from_embeddings(query, labels, generator=generator)
        references = loss.references()
        if references is None:
            itself = torch.arange(query.shape[-2], device=query.device)
            pairs = make_pairs(labels, labels, self_index=itself)
            score = self.score(query, query, loss.geometry)
        else:
            pairs = make_pairs(labels, references.labels)
            score = self.score(query, self.as_query(references.vectors), loss.geometry)
        value: Tensor = loss(score, pairs, generator=generator)
        return value

    def score(self, query: Tensor, reference: Tensor, geometry: Geometry) -> Tensor:
        """Map [..., B, E] × [..., R, E] → [..., B, R], larger is closer; training, and evaluation
        unless `Traits.plain_retrieval`.

        Here: the loss's geometry. A method with a layout of its own, E ≠ D, has its own score.
        """
        return geometries.score(query, reference, geometry)

    def as_query(self, vectors: Tensor) -> Tensor:
        """Return [R, D] reference vectors in the layout of queries, [R, E]."""
        return vectors

    def embedding_of(self, query: Tensor) -> Tensor:
        """Return the part [..., B, D] of a query [..., B, E] that is its embedding."""
        return query

    def observed(self) -> dict[str, Tensor]:
        """Return scalars worth watching that are no terms, read once a step, after `backward`.

        Logged as epoch means under `observed/<name>`. `<term>_to_metric` is the gradient of a term
        over the metric term's, both with respect to the embedding (`gradient_norms.py`): its
        largest value of an epoch is logged as `observed/<term>_to_metric/max`, and above
        `epoch_metrics.OVERWHELMING` the trial's log and the report warn.
        """
        return {}

    def embed(self, features: Tensor, geometry: Geometry | None = None) -> Tensor:
        """Return the embeddings [N, E] of features [N, F]; deterministic, in evaluation mode.

        Args:
            geometry: by which they will be compared, so that only what it ignores is normalised
                away; None: the loss's geometry of retrieval.
        """
        raise NotImplementedError

    def measure(
        self, inputs: Tensor, features: Callable[[Tensor], Tensor], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return what there is to know of a split's images beside where they lie, by name.

        A value [B] per image of a block; read of a sample of each split that is evaluated at the
        end and told as mean and interval (`trainables/core/evaluator.py`).

        Args:
            inputs: [B, ...] as `prepare` gets them, a random sample's.
            features: the backbone, inputs → [B, F].
        """
        return {}


def compare_embeddings(
    method: Method, query: Tensor, reference: Tensor, geometry: Geometry
) -> Tensor:
    """Return the scores [B, R] in retrieval of what `embed` gave, [B, E] and [R, E]."""
    if method.traits.plain_retrieval:
        return geometries.score(query, reference, geometry)
    return method.score(query, reference, geometry)


def compute_class_logits(method: Method, features: Tensor) -> Tensor:
    """Map [N, F] → [N, C]: what classification answers by, the largest of training classes; in
    evaluation mode, of a loss that `classifies`.

    Embeddings are compared with the class weights by the geometry of training, which need not be
    that of retrieval: the loss softmax trains on products, to which the length of an embedding
    belongs.
    """
    references = method.loss.references()
    assert references is not None
    vectors, geometry = references.vectors, method.loss.geometry
    classes = vectors if method.traits.plain_retrieval else method.as_query(vectors)
    embeddings = method.embed(features, geometry)
    return method.loss.logits(compare_embeddings(method, embeddings, classes, geometry))
