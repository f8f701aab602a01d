"""`evaluate`: embeddings, labels and a score to named metrics.

A new ranking metric is a class in `ranking_metrics.py` and a line in `RANKING`; one that reads
embeddings is a function (unit rows, labels) → float and a line in `STRUCTURE`; one of a clustering,
in `CLUSTERING`. Metrics of a kind share its costly part: the places of positives, or the
clustering.
Those of other packages are entry points (`outside.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.errors import ConfigError, TrialFailure
from trainables.evaluation import clustering, dvml_figures, structure
from trainables.evaluation.accuracy import top_k_accuracy
from trainables.evaluation.clustering import Contingency
from trainables.evaluation.kmeans import kmeans
from trainables.evaluation.outside import metrics_of_others, names_with_text
from trainables.evaluation.places import Places
from trainables.evaluation.ranking_metrics import MapAt, MapAtR, RankingMetric, RecallAt, RPrecision
from trainables.evaluation.routes import places
from trainables.evaluation.scores import Score, resolve_score

MOST_RECALL = 1000
RANKING: Mapping[str, RankingMetric] = {
    **{f"recall_at_{k}": RecallAt(k) for k in (1, 2, 4, 8, 10, 100, 1000)},
    "r_precision": RPrecision(),
    "map_at_r": MapAtR(),
    "map_at_1000": MapAt(1000, with_query=True),
    "map_at_1000_of_found": MapAt(1000, with_query=False),
}
CLUSTERING: Mapping[str, Callable[[Contingency], float]] = {
    "nmi": clustering.nmi,
    "ami": clustering.ami,
    "f1": clustering.f1,
}
STRUCTURE: Mapping[str, Callable[[Tensor, Tensor], float]] = {
    "density": structure.density,
    "density_code": structure.density_code,
    "concentration": structure.concentration,
    "spectrum": lambda rows, _: structure.spectrum(rows),
    "uniformity": lambda rows, _: structure.uniformity(rows),
    "gaussian_p": dvml_figures.gaussian_p,
    "gaussian_p_deviation": dvml_figures.gaussian_p_deviation,
    "relative_deviation": dvml_figures.relative_deviation,
}
ACCURACY: Mapping[str, int] = {"top_1_accuracy": 1, "top_5_accuracy": 5}
OTHERS = metrics_of_others({*RANKING, *CLUSTERING, *STRUCTURE, *ACCURACY})
# Raise the number when any value could change: evaluations are kept under it.
EVALUATOR = "retrieval-2" + names_with_text(OTHERS)
# Every epoch; once at the end (those defined for every split with a pair, also for collapsed
# embeddings); whatever can be asked for, besides any recall_at_<k ≤ 1000>.
PER_EPOCH: tuple[str, ...] = (
    *(f"recall_at_{k}" for k in (1, 2, 4, 8)),
    "r_precision",
    "map_at_r",
)
METRICS: tuple[str, ...] = (
    *PER_EPOCH,
    "recall_at_10",
    "recall_at_100",
    "recall_at_1000",
    "map_at_1000",
    *CLUSTERING,
)
ALL: tuple[str, ...] = (*RANKING, *CLUSTERING, *STRUCTURE, *ACCURACY, *OTHERS)


@torch.no_grad()
def evaluate(
    embeddings: Tensor,
    labels: Tensor,
    *,
    score: Score | str,
    metrics: Sequence[str] = METRICS,
    gallery: tuple[Tensor, Tensor] | None = None,
    logits: Tensor | None = None,
    block: int | None = None,
    seed: int = 0,
    restarts: int | None = None,
) -> dict[str, float]:
    """Metrics of a split, each item querying all others, or the gallery.

    Args:
        embeddings: [N, E] on any device. labels: [N], any integers.
        score: "cosine", "dot", "euclidean", or a method's own, (q[B, E], r[R, E]) → [B, R], larger
            is closer. It orders the ranking metrics. The others do not look at it: they are of
            rows brought to unit length.
        metrics: names of `ALL` or recall_at_<k>, k ≤ 1000.
        gallery: (embeddings [G, E], labels [G]) that are searched instead (In-Shop). Metrics that
            do not rank are then of queries and gallery together.
        logits: [N, C] for the accuracies; `labels` are then columns of it.
        block: queries at a time (None: by memory); changes no value but in its last bits.
        seed: of k-means. restarts: its starts, of which the one of least spread counts; None: one.

    Raises:
        ConfigError: an unknown metric, or a split on which one is not defined, as one class for
            distances between classes.
        TrialFailure: embeddings or scores that are not finite numbers.
    """
    ranking = {name: metric for name in metrics if (metric := ranking_metric(name)) is not None}
    for name in metrics:
        if name not in ranking and name not in ALL:
            raise ConfigError("metrics", repr(name), f"one of {', '.join(ALL)}")
    check(embeddings, labels)
    if gallery is not None:
        check(*gallery)
    values: dict[str, float] = {}
    if wanted := [name for name in metrics if name in ACCURACY]:
        if logits is None:
            raise ConfigError(f"metrics.{wanted[0]}", "no logits", "logits of the classifier")
        for name in wanted:
            values[name] = top_k_accuracy(logits, labels.to(logits.device), ACCURACY[name])
    rows, classes = embeddings, labels.to(embeddings.device)
    if gallery is not None:
        rows = torch.cat([rows, gallery[0].to(rows.device)])
        classes = torch.cat([classes, gallery[1].to(rows.device)])
    codes = torch.unique(classes, return_inverse=True)[1]
    if ranking:
        cut = None if gallery is None else len(labels)
        made = places(rows, codes, cut, resolve_score(score), list(ranking.values()), block=block)
        values |= average(ranking, made)
    if any(name in CLUSTERING or name in STRUCTURE or name in OTHERS for name in metrics):
        values |= of_rows(F.normalize(rows.float(), dim=1), codes, metrics, seed, restarts)
    return {name: values[name] for name in metrics}


def of_embeddings(name: str) -> bool:
    """Whether `evaluate` knows the metric and needs nothing for it but embeddings and labels."""
    return name not in ACCURACY and (name in ALL or ranking_metric(name) is not None)


def ranking_metric(name: str) -> RankingMetric | None:
    """Of that name, or None."""
    recall = re.fullmatch(r"recall_at_([1-9]\d*)", name)
    if recall and int(recall[1]) <= MOST_RECALL:
        return RecallAt(int(recall[1]))
    return RANKING.get(name)


def check(embeddings: Tensor, labels: Tensor) -> None:
    if len(embeddings) != len(labels) or len(labels) == 0:
        raise ConfigError(
            "embeddings", f"{len(embeddings)} rows and {len(labels)} labels", "as many, and some"
        )
    # A sum costs less than a look at each number, and shows whether that is needed.
    if not torch.isfinite(embeddings.sum()) and (
        bad := int((~torch.isfinite(embeddings)).any(1).sum())
    ):
        raise TrialFailure(
            f"evaluation: {bad} of {len(embeddings)} embeddings hold NaN or infinity"
        )


def average(wanted: Mapping[str, RankingMetric], found: Iterator[Places]) -> dict[str, float]:
    total = dict.fromkeys(wanted, 0.0)
    count = dict.fromkeys(wanted, 0)
    for block in found:
        for name, metric in wanted.items():
            value, counts = metric(block)
            total[name] += float(value[counts].sum())
            count[name] += int(counts.sum())
    for name, queries in count.items():
        if queries == 0:
            raise ConfigError(
                f"metrics.{name}",
                "a split whose classes have one image each",
                "at least one class with two images",
            )
    return {name: total[name] / count[name] for name in wanted}


def of_rows(
    rows: Tensor, labels: Tensor, metrics: Sequence[str], seed: int, restarts: int | None
) -> dict[str, float]:
    """Of unit rows; labels 0 … C − 1, all present."""
    values = {name: STRUCTURE[name](rows, labels) for name in metrics if name in STRUCTURE}
    values |= {name: float(OTHERS[name](rows, labels)) for name in metrics if name in OTHERS}
    wanted = [name for name in metrics if name in CLUSTERING]
    if wanted:
        clusters = kmeans(rows, int(labels.max()) + 1, seed=seed, restarts=restarts or 1)
        table = clustering.contingency(clusters, labels)
        values |= {name: CLUSTERING[name](table) for name in wanted}
    return values
