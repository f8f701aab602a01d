"""Metrics of clusterings and of embedding spaces by explicit loops, from their definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.linalg import norm


def unit(x: np.ndarray) -> np.ndarray:
    return np.array([row / norm(row) for row in x.astype(float)])


def centres(x: np.ndarray, y: np.ndarray) -> dict[int, np.ndarray]:
    return {c: np.mean([row for row, own in zip(x, y, strict=True) if own == c], 0) for c in set(y)}


def f1(clusters: list[int], labels: list[int]) -> float:
    hit = miss = false = 0
    for i, j in itertools.combinations(range(len(labels)), 2):
        said, true = clusters[i] == clusters[j], labels[i] == labels[j]
        hit, miss, false = (
            hit + (said and true),
            miss + (true and not said),
            false + (said and not true),
        )
    return 2 * hit / (2 * hit + miss + false)


def inter(x: np.ndarray, y: np.ndarray) -> float:
    middle = centres(x, y).values()
    return float(np.mean([norm(a - b) for a, b in itertools.combinations(middle, 2)]))


def density(x: np.ndarray, y: np.ndarray) -> float:
    x = unit(x)
    pairs = itertools.combinations(range(len(x)), 2)
    return float(np.mean([norm(x[i] - x[j]) for i, j in pairs if y[i] == y[j]])) / inter(x, y)


def density_code(x: np.ndarray, y: np.ndarray) -> float:
    """The public code's: cosine distances, classes alike, centres of unit length."""
    x, intra = unit(x), {}
    for c in set(y):
        own = [row for row, label in zip(x, y, strict=True) if label == c]
        if len(own) > 1:
            intra[c] = np.mean([1 - a @ b for a, b in itertools.permutations(own, 2)])
    within = [intra.get(c, max(intra.values())) for c in set(y)]
    middle = [m / norm(m) for m in centres(x, y).values()]
    between = [1 - a @ b for a, b in itertools.permutations(middle, 2)]
    return float(np.mean(within) / np.mean(between))


def concentration(x: np.ndarray, y: np.ndarray) -> float:
    x = unit(x)
    spread = []
    for c, middle in centres(x, y).items():
        own = [norm(row - middle) for row, label in zip(x, y, strict=True) if label == c]
        if len(own) > 1:
            spread.append(np.mean(own) / inter(x, y))
    return float(np.mean([(s - np.mean(spread)) ** 2 for s in spread]))


def spectrum(x: np.ndarray) -> float:
    values = np.linalg.svd(unit(x), compute_uv=False)
    share, m = values / values.sum(), len(values)
    return math.fsum(1 / m * math.log(1 / m / s) for s in share)


def uniformity(x: np.ndarray) -> float:
    x = unit(x)
    pairs = itertools.combinations(x, 2)
    return float(np.mean([math.exp(-2 * norm(a - b) ** 2) for a, b in pairs]))


def gaussian_p(x: np.ndarray, y: np.ndarray) -> list[float]:
    """Of each class of two images or more."""
    x, found = unit(x), []
    for c, middle in centres(x, y).items():
        away = np.array([row - middle for row, own in zip(x, y, strict=True) if own == c])
        n = len(away)
        if n < 2:
            continue
        sigma = math.sqrt(np.mean(away**2))
        values = []
        for column in away.T:
            gap = 0.0
            for k, z in enumerate(sorted(column / sigma)):
                below = 0.5 * math.erfc(-z / math.sqrt(2))
                gap = max(gap, below - k / n, (k + 1) / n - below)
            t = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * gap
            q = 2 * math.fsum((-1) ** (j - 1) * math.exp(-2 * (j * t) ** 2) for j in range(1, 200))
            values.append(q)
        found.append(float(np.mean(values)))
    return found


def relative_deviation(x: np.ndarray, y: np.ndarray) -> float:
    x, found = unit(x), []
    for c, middle in centres(x, y).items():
        own = [norm(row - middle) for row, label in zip(x, y, strict=True) if label == c]
        if len(own) > 1:
            found.append(np.mean(own) / norm(middle))
    return float(np.mean(found))
