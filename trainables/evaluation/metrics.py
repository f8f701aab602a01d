"""Compute named metrics from embeddings, labels and a score.

A new metric is a function with `@metric(…)` (`metric.py`). Metrics of one kind share their costly
part: the places of positives, or the clustering.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.data.splits import Subset
from trainables.evaluation.clustering import build_contingency, kmeans
from trainables.evaluation.metric import METRIC_REGISTRY
from trainables.evaluation.ranking import find_places
from trainables.evaluation.ranking_metrics import PositiveRanks, RankingMetric, RecallAt
from trainables.evaluation.scores import Score, resolve_score
from trainables.words.errors import ConfigError, TrialFailure
from trainables.words.metrics import AT_END, BY_CLASS

# metric → [mean, number of queries that count] of each class
ClassMeans = dict[str, list[list[float]]]
MAX_RECALL_K = 1000
ALL: tuple[str, ...] = tuple(METRIC_REGISTRY)
_FUNCTIONS: dict[str, dict[str, Any]] = {
    reads: {n: METRIC_REGISTRY[n].function for n in ALL if METRIC_REGISTRY[n].reads == reads}
    for reads in ("places", "clusters", "rows", "logits")
}
RANKING, CLUSTERING, STRUCTURE, ACCURACY = _FUNCTIONS.values()
# Evaluations are stored under this name: raise the number when any value could change. A metric of
# another package adds a digest of its module's source, so that a change there evaluates anew.
EVALUATOR = "retrieval-2" + "".join(
    f"+{name}.{METRIC_REGISTRY[name].digest}" for name in ALL if not METRIC_REGISTRY[name].is_own
)


@torch.no_grad()
def evaluate_embeddings(
    embeddings: Tensor,
    labels: Tensor,
    *,
    score: Score | str,
    metrics: Sequence[str] = AT_END,
    gallery: tuple[Tensor, Tensor] | None = None,
    further: Tensor | None = None,
    logits: Tensor | None = None,
    restarts: int | None = None,
    class_means: ClassMeans | None = None,
) -> dict[str, float]:
    """Compute the named metrics of embeddings; each item queries all others, or the gallery if any.

    Args:
        embeddings: [N, E] on any device.
        labels: [N], any integers.
        score: "cosine", "dot", "euclidean", or a callable (q[B, E], r[R, E]) → [B, R], larger is
            closer. Ranking metrics use the score; all others use embeddings of unit length.
        metrics: names in `ALL`, or recall_at_<k> with k ≤ 1000.
        gallery: (embeddings [G, E], labels [G]) that the items query (In-Shop). Metrics that do
            not rank are computed on queries and gallery together.
        further: [M, 2] int64, pairs of a query's row and a label of the gallery that is relevant to
            the query besides its own; needs a gallery.
        logits: [N, C] for accuracies; `labels` are then column numbers of `logits`.
        restarts: number of runs of k-means, of which the best counts; None: one.
        class_means: filled with the means by class of the metrics in `BY_CLASS` that are computed;
            the classes are those of `labels`, in ascending order.

    Returns:
        The values by name, in the order of `metrics`.

    Raises:
        ConfigError: a metric is unknown, or not defined on this split.
        TrialFailure: embeddings or scores are not finite.
        ValueError: `further` has a label that no item has.
    """
    # check the input, and group the metrics by what they read
    for name in metrics:
        if name not in ALL and find_ranking_metric(name) is None:
            raise ConfigError(
                "metrics", f"{name!r} is not a metric", f"Take one of {', '.join(ALL)}"
            )
    ranking = {name: metric for name in metrics if (metric := find_ranking_metric(name))}
    by_kind = {kind: [n for n in metrics if n in _FUNCTIONS[kind]] for kind in _FUNCTIONS}
    _check_rows(embeddings, labels)
    # compute the accuracies
    values: dict[str, float] = {}
    for name in by_kind["logits"]:
        if logits is None:
            raise ConfigError(
                f"metrics.{name}",
                f"{name} needs a classifier's logits",
                f"Leave out {name}, or set `task: classification`",
            )
        values[name] = ACCURACY[name](logits, labels.to(logits.device))
    # rank the items; rows before `cut` are queries, and rows after it the gallery
    rows, labels, cut = embeddings, labels.to(embeddings.device), None
    if gallery is not None:
        _check_rows(*gallery)
        rows = torch.cat([rows, gallery[0].to(rows.device)])
        labels, cut = torch.cat([labels, gallery[1].to(rows.device)]), len(labels)
    label_values, classes = torch.unique(labels, return_inverse=True)  # classes: 0 … C − 1
    if further is not None:
        query, label = further.to(labels.device).t().contiguous()
        if not (is_known := torch.isin(label, label_values)).all():
            missing = int(label[~is_known][0])
            raise ValueError(f"further: no item has the label {missing}. Leave out its pairs.")
        further = torch.stack([query, torch.searchsorted(label_values, label)], 1)
    if ranking:
        places = find_places(
            rows, classes, cut, resolve_score(score), list(ranking.values()), further=further
        )
        values |= _average_over_queries(ranking, places, class_means)
    # compute the metrics of unit rows, and those of k-means' clusters
    if by_kind["clusters"] or by_kind["rows"]:
        rows = F.normalize(rows.float(), dim=1)
        values |= {name: float(STRUCTURE[name](rows, classes)) for name in by_kind["rows"]}
    if by_kind["clusters"]:
        clusters = kmeans(rows, int(classes.max()) + 1, seed=0, restarts=restarts or 1)
        table = build_contingency(clusters, classes)
        values |= {name: CLUSTERING[name](table) for name in by_kind["clusters"]}
    return {name: values[name] for name in metrics}


def evaluate_split(
    embeddings: Tensor, subset: Subset, *, score: Score | str, **options: Any
) -> dict[str, float]:
    """Return metrics of a split by name, from embeddings [N, E] in the order of the split's images.

    Each image queries all others; if the split has a gallery, each query queries the gallery.
    `options` are the metrics, logits and restarts of `evaluate_embeddings`.
    """
    cut, labels = subset.queries, subset.labels  # None: there is no gallery, and [:None] takes all
    queries = embeddings[:cut], labels[:cut]
    gallery = None if cut is None else (embeddings[cut:], labels[cut:])
    options |= {"gallery": gallery, "further": subset.further}
    return evaluate_embeddings(*queries, score=score, **options)


def needs_embeddings_alone(name: str) -> bool:
    """Return whether a known metric can be computed from embeddings and labels alone."""
    return name not in ACCURACY and (name in ALL or find_ranking_metric(name) is not None)


def find_ranking_metric(name: str) -> RankingMetric | None:
    """Return the ranking metric called `name`, also Recall@k for any k ≤ 1000; else None."""
    recall = re.fullmatch(r"recall_at_([1-9]\d*)", name)
    if recall and int(recall[1]) <= MAX_RECALL_K:
        return RecallAt(int(recall[1]))
    return RANKING.get(name)


def _check_rows(embeddings: Tensor, labels: Tensor) -> None:
    """Refuse embeddings that do not fit the labels or are not finite."""
    if len(embeddings) != len(labels) or len(labels) == 0:
        raise ConfigError(
            "embeddings",
            f"there are {len(embeddings)} embeddings and {len(labels)} labels",
            "Give embeddings with one label each",
        )
    # The sum is cheap; if it is finite, so are all entries. A sum of finite entries may overflow.
    if not torch.isfinite(embeddings.sum()):
        n_bad = int((~torch.isfinite(embeddings)).any(1).sum())
        if n_bad:
            raise TrialFailure(
                f"evaluation: {n_bad} of {len(embeddings)} embeddings hold NaN or infinity"
            )


def _average_over_queries(
    metrics: Mapping[str, RankingMetric],
    blocks: Iterator[PositiveRanks],
    class_means: ClassMeans | None,
) -> dict[str, float]:
    """Return the mean of each metric over the queries that count for it, from blocks of queries.

    `class_means`, if given, is filled with the means by class of the metrics in `BY_CLASS`.
    """
    total, n_queries = dict.fromkeys(metrics, 0.0), dict.fromkeys(metrics, 0)
    class_names = [name for name in BY_CLASS if name in metrics and class_means is not None]
    by_query: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in class_names}
    for ranks in blocks:
        for name, metric in metrics.items():
            value, does_count = metric(ranks)
            total[name] += float(value[does_count].sum())
            n_queries[name] += int(does_count.sum())
            if name in by_query:
                by_query[name].append((ranks.classes[does_count].cpu(), value[does_count].cpu()))
    for name in metrics:
        if n_queries[name] == 0:
            raise ConfigError(
                f"metrics.{name}",
                "all classes of the split have one image each",
                "One class needs two images",
            )
    if class_means is not None:
        for name, parts in by_query.items():
            classes, values = map(torch.cat, zip(*parts, strict=True))
            counts = torch.bincount(classes)
            means = (torch.bincount(classes, values) / counts.clamp(min=1)).tolist()
            pairs = zip(means, counts.tolist(), strict=True)
            class_means[name] = [[round(mean, 6), count] for mean, count in pairs]
    return {name: total[name] / n_queries[name] for name in metrics}
