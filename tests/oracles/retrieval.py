"""Retrieval metrics by explicit loops in float64, straight from their definitions.

Item i is compared with all others; order: similarity descending, then index ascending.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np


def order(similarity: np.ndarray, query: int) -> list[int]:
    """All items but the query, nearest first."""
    others = [item for item in range(len(similarity)) if item != query]
    return sorted(others, key=lambda item: (-similarity[query, item], item))


def recall_at(similarity: np.ndarray, labels: np.ndarray, k: int) -> float:
    hits = 0
    for query in range(len(labels)):
        near = order(similarity, query)[:k]
        hits += any(labels[item] == labels[query] for item in near)
    return hits / len(labels)


def r_precision(similarity: np.ndarray, labels: np.ndarray) -> float:
    values = []
    for query in range(len(labels)):
        positives = sum(labels == labels[query]) - 1
        if positives:
            near = order(similarity, query)[:positives]
            values.append(sum(labels[item] == labels[query] for item in near) / positives)
    return math.fsum(values) / len(values)


def map_at_r(similarity: np.ndarray, labels: np.ndarray) -> float:
    values = []
    for query in range(len(labels)):
        positives = sum(labels == labels[query]) - 1
        if not positives:
            continue
        total, seen = 0.0, 0
        for place, item in enumerate(order(similarity, query)[:positives], start=1):
            if labels[item] == labels[query]:
                seen += 1
                total += seen / place
        values.append(total / positives)
    return math.fsum(values) / len(values)


def map_with_query(similarity: np.ndarray, labels: np.ndarray) -> float:
    """Of rankings that the query itself leads, as its first hit."""
    values = []
    for query in range(len(labels)):
        hits = [True, *(labels[item] == labels[query] for item in order(similarity, query))]
        places = [place for place, hit in enumerate(hits, start=1) if hit]
        values.append(sum(i / place for i, place in enumerate(places, start=1)) / len(places))
    return math.fsum(values) / len(values)


def nmi(clusters: list[int], labels: list[int]) -> float:
    """2·I / (H + H), from counts."""
    n = len(labels)

    def entropy(groups: list[object]) -> float:
        return -math.fsum(c / n * math.log(c / n) for c in Counter(groups).values())

    first, second = entropy(list(clusters)), entropy(list(labels))
    both = entropy(list(zip(clusters, labels, strict=True)))
    return 2 * (first + second - both) / (first + second)


def map_at(similarity: np.ndarray, labels: np.ndarray, k: int, *, with_query: bool) -> float:
    values = []
    for query in range(len(labels)):
        positives = sum(labels == labels[query]) - 1
        if not positives:
            continue
        total, seen = 0.0, 0
        for place, item in enumerate(order(similarity, query)[:k], start=1):
            if labels[item] == labels[query]:
                seen += 1
                total += seen / place
        values.append(total / (positives + 1 if with_query else min(k, positives)))
    return math.fsum(values) / len(values)
