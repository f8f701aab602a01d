"""Metrics of embeddings; the compiled code loads only for sets that need it."""

from trainables.evaluation.metrics import (
    ALL,
    EVALUATOR,
    METRICS,
    PER_EPOCH,
    evaluate,
    of_embeddings,
)
from trainables.evaluation.scores import PLAIN, PlainScore

__all__ = [
    "ALL",
    "EVALUATOR",
    "METRICS",
    "PER_EPOCH",
    "PLAIN",
    "PlainScore",
    "evaluate",
    "of_embeddings",
]
