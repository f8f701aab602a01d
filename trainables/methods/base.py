"""The contract of methods: a method owns everything before the score.

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    ClassVar,
    Literal,
    NamedTuple,
    TypedDict,
    Unpack,
)

import torch
from torch import Tensor, nn

from trainables.config.registry import ComponentConfig, NamedConfig, store_as_none
from trainables.losses import geometry as geometries
from trainables.losses.base import Geometry, Loss, ParamGroup, Traits, Trial, make_pairs
from trainables.methods.head import Principal, find_principal_start
from trainables.words.registry import Registry

if TYPE_CHECKING:
    from trainables.config.network import EmbeddingConfig

RATIO = (1e-3, 1.0)  # least and largest relative weight of a search
METHODS: "Registry[type[Method]]" = Registry("methods", "trainables.methods")


class Term(NamedTuple):
    """Hold one summand of the loss; value and weight are separate, so that weight 0 is visible."""

    value: Tensor
    weight: float | Tensor = 1.0

    @property
    def is_active(self) -> bool:
        """Whether the term is part of the sum, which the number 0 as its weight prevents."""
        return isinstance(self.weight, Tensor) or self.weight != 0


@dataclass(frozen=True)
class Progress:
    """State how far training has come.

    Attributes:
        phase: "warmup" while roles such as the backbone are held, else "main", or a phase name of
            the method.
        step: number of the step, below 0 in the warm-up before the epochs.
        fraction: share of all optimiser steps of the epochs already taken, in [0, 1).
    """

    phase: str = "main"
    epoch: int = 0
    step: int = 0
    fraction: float = 0.0


@dataclass(frozen=True)
class Batch:
    """Hold the inputs and labels of one step.

    Attributes:
        inputs: [B, 3, H, W] float images, or [B, F] cached features.
        labels: [B, S] int64.
    """

    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class State:
    """Hold the result of one forward pass; methods subclass it with further tensors.

    Attributes:
        query: [..., B, E], compared by the metric loss.
    """

    query: Tensor


class WeightedConfig(NamedConfig):
    """weights: what the weights of the method's terms mean. "absolute": factors of the terms.
    "relative": the ratio of a term's gradient to the metric term's at the start. A term is then
    multiplied by its weight and by a constant, which the trial measures on its first four
    batches before the first step (`core/loss_terms.py`) and keeps in checkpoints and export.
    None: "absolute".
    Sources: weights: this project.
    """

    weights: Annotated[Literal["absolute", "relative"] | None, store_as_none("absolute")] = None


class MethodParts(TypedDict):
    """Name the keyword arguments of every method: F, the embedding, the base loss, the classes."""

    features: int
    embedding: "EmbeddingConfig"
    loss: Loss
    classes: int


class Method(nn.Module):
    """Base class of all methods, which override those of its hooks that they need:

        before a trial    check, describe_traits
        at its start      param_groups, fit, scale_start
        at each step      prepare, forward, terms, which calls metric, score, as_query and
                          embedding_of; observed
        in evaluation     embed, score, as_query, measure

    Initial values come from torch's global generator, which the caller seeds
    (`streams.seed_global_generator`); a method of several parts draws each inside
    `streams.use_substream(name)`, so that the head starts alike in all methods.

    Attributes:
        REQUIRED: names that a registered class must define.
        NEUTRAL: options with which the method equals the plain loss.
        WEIGHTS: term → the options that are its weight (in some phase), for each term that
            `weights: relative` scales; "metric" → options that weigh the metric term.
        RATIOS: weight → its least and largest value that `space: default` searches where weights
            are relative. Default: `RATIO`.
        MEASURES: names of what `measure` returns.
        classifies: whether its embeddings, compared with class weights, are a classifier's answer.
        factors: what relative weights of the `scaled_terms` are multiplied by; None: absolute.
    """

    Config: ClassVar[type[NamedConfig]]
    REVISION: ClassVar[int]
    REQUIRED: ClassVar[tuple[str, ...]] = ("Config", "REVISION", "NEUTRAL")
    NEUTRAL: ClassVar[dict[str, object]]
    WEIGHTS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    RATIOS: ClassVar[Mapping[str, tuple[float, float]]] = {}
    MEASURES: ClassVar[tuple[str, ...]] = ()
    classifies: ClassVar[bool] = False
    factors: Tensor | None

    def __init__(self, config: ComponentConfig, **parts: Unpack[MethodParts]) -> None:
        """Keep the loss and the number of classes, and describe what the method requires."""
        super().__init__()
        self.loss, self.classes = parts["loss"], parts["classes"]
        self.traits = self.describe_traits(config)
        self.observations: dict[str, Tensor] = {}
        is_relative = isinstance(config, WeightedConfig) and config.weights == "relative"
        factors = torch.ones(len(self.scaled_terms)) if is_relative else None
        self.register_buffer("factors", factors)  # None is no part of a state dict
        self.principal: Principal = find_principal_start  # PCA for `fit`; a trial caches it

    @classmethod
    def check(cls, trial: Trial) -> None:
        """Raise a ValueError, with reason and remedy, if the method does not fit the trial."""

    @classmethod
    def describe_traits(cls, config: ComponentConfig) -> Traits:
        """Return what the configured method requires of its loss, backbone and evaluation.

        By default a method that overrides `score`, `as_query` or `metric` needs a loss that takes
        scores, and retrieval compares by the loss's geometry if `score` is not overridden.
        """
        base = (Method.score, Method.as_query, Method.metric)
        own_scores = (cls.score, cls.as_query, cls.metric) != base
        return Traits(own_scores=own_scores, plain_retrieval=cls.score is Method.score)

    def param_groups(self, phase: str) -> list[ParamGroup]:
        """Return the parameters of head, method and loss by role; a phase may omit some."""
        raise NotImplementedError

    def fit(self, features: Tensor) -> None:
        """Initialise the head from the training features [N, F], if `embedding.init` is "pca".

        The trainer calls it once before the first step. `self.principal` finds the directions.
        """
        raise NotImplementedError

    def scale_start(self, features: Tensor) -> None:
        """Scale initial weights by features [N, F], if `traits.scaled_start` is set.

        The trainer calls it once, after `fit`, with the features of the first batches, augmented
        and mixed as in training.
        """
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
        """Return the summands of the training loss: name → value and weight.

        "metric" is the base loss. The loss's own penalties, of parameters and embeddings, follow.
        """
        terms = {"metric": Term(self.metric(state.query, labels, generator))}
        penalties = self.loss.penalty() | self.loss.query_penalty(self.embedding_of(state.query))
        for name, (value, weight) in penalties.items():
            terms[name] = Term(value, weight)
        return terms

    @property
    def scaled_terms(self) -> tuple[str, ...]:
        """The terms that `weights: relative` scales."""
        return tuple(name for name in self.WEIGHTS if name != "metric")

    def scale_terms(self, terms: dict[str, Term]) -> dict[str, Term]:
        """Multiply relative weights by their factors; a weight that is the number 0 stays."""
        if self.factors is None:
            return terms
        factors = dict(zip(self.scaled_terms, self.factors.unbind(), strict=True))
        return {
            name: Term(term.value, term.weight * factors[name])
            if name in factors and term.is_active
            else term
            for name, term in terms.items()
        }

    def metric(
        self, query: Tensor, labels: Tensor, generator: torch.Generator, loss: Loss | None = None
    ) -> Tensor:
        """Return the base loss, or `loss`, of `query[..., B, E]` with labels [B, S].

        Queries are compared with the loss's references or, if it has none, with each other.
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
        return loss(score, pairs, generator=generator)

    def score(self, query: Tensor, reference: Tensor, geometry: Geometry) -> Tensor:
        """Score queries [..., B, E] against references [..., R, E] → [..., B, R], larger is closer.

        Training uses this score, and evaluation too, unless `Traits.plain_retrieval` is set.
        Methods override it if their queries are wider (E) than their embeddings (D).
        """
        return geometries.score(query, reference, geometry)

    def as_query(self, vectors: Tensor) -> Tensor:
        """Return [R, D] reference vectors in the layout of queries, [R, E]."""
        return vectors

    def embedding_of(self, query: Tensor) -> Tensor:
        """Return the part [..., B, D] of a query [..., B, E] that is its embedding."""
        return query

    def observed(self) -> dict[str, Tensor]:
        """Return scalars that are logged but are no terms; read once a step, after `backward`.

        By default these are what the step wrote into `self.observations`. Their epoch means are
        logged under `observed/<name>`. The name `<term>_to_metric` is special: the ratio of the
        gradients of that term and of the metric term, which the trainer measures in some steps
        (`core/loss_terms.py`) unless the method observes it in all (`nir.py`). Its first value
        and the largest one of an epoch are logged too, as `…/first` and `…/max`.
        """
        return self.observations

    def embed(self, features: Tensor, geometry: Geometry | None = None) -> Tensor:
        """Return the embeddings [N, E] of features [N, F] in evaluation mode, deterministically.

        Embeddings are normalised as a comparison by `geometry` (default: that of retrieval) needs.
        """
        raise NotImplementedError

    def measure(
        self, inputs: Tensor, features: Callable[[Tensor], Tensor], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return further measurements of each image, such as its uncertainty: name → [B].

        At the end of a trial the evaluator calls `measure` for a random sample of each evaluated
        split, and reports mean and interval. `features` is the backbone: it maps inputs, in
        the form that `prepare` receives, to [B, F].
        """
        return {}


def compare_embeddings(
    method: Method, query: Tensor, reference: Tensor, geometry: Geometry
) -> Tensor:
    """Return retrieval scores [B, R] of embeddings, by the geometry or the method's own score."""
    if method.traits.plain_retrieval:
        return geometries.score(query, reference, geometry)
    return method.score(query, reference, geometry)


def compute_class_logits(method: Method, features: Tensor) -> Tensor:
    """Return the logits [N, C] of the training classes for features [N, F], in evaluation mode.

    The loss must classify, that is, have class weights. They are compared with embeddings by the
    geometry of training, which may differ from that of retrieval: the loss softmax trains on
    products, which depend on the length of an embedding.
    """
    references = method.loss.references()
    assert references is not None
    vectors, geometry = references.vectors, method.loss.geometry
    classes = vectors if method.traits.plain_retrieval else method.as_query(vectors)
    embeddings = method.embed(features, geometry)
    return method.loss.logits(compare_embeddings(method, embeddings, classes, geometry))
