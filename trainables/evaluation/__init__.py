"""Retrieval metrics; imports no faiss until a k-means runs."""

from trainables.evaluation.metrics import EVALUATOR, METRICS, PER_EPOCH, evaluate

__all__ = ["EVALUATOR", "METRICS", "PER_EPOCH", "evaluate"]
