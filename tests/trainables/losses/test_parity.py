"""Losses as in pytorch-metric-learning, on random problems in float64.

What a problem holds: classes of one image, classes without any, duplicates of an embedding
under one label or two, and two proxies that tie. What the definitions do not share, and how a
problem is restricted so that they do, each test states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import DotProductSimilarity, LpDistance
from pytorch_metric_learning.reducers import MeanReducer
from torch import Tensor

from tests.trainables.losses.cases import batch, made, same_value_and_gradients, value
from trainables import streams
from trainables.losses.base import Loss

EXAMPLES = settings(max_examples=20, deadline=None)


@dataclass(frozen=True)
class Problem:
    classes: int
    dim: int
    x: Tensor
    labels: Tensor
    scale: float
    margin: float  # in (0, 1)


@st.composite
def problems(draw: Any) -> Problem:
    classes, dim = draw(st.integers(2, 9)), draw(st.integers(2, 7))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=2, max_size=12))
    draws = streams.create_generator(draw(st.integers(0, 2**32)), "problem")
    x = torch.randn(len(labels), dim, dtype=torch.float64, generator=draws)
    if draw(st.booleans()):
        x[-1] = x[0]
    return Problem(
        classes,
        dim,
        x.requires_grad_(),
        torch.tensor(labels),
        scale=draw(st.sampled_from([1.0, 8.0, 32.0, 64.0])),
        margin=draw(st.floats(0.01, 0.99)),
    )


def loss_of(name: str, problem: Problem, **options: Any) -> Loss:
    """With the first two references equal."""
    loss = made(name, classes=problem.classes, dim=problem.dim, **options).double()
    with torch.no_grad():
        vectors = loss.references().vectors
        vectors[1] = vectors[0]
    return loss


def compare(problem: Problem, loss: Loss, theirs: Any, *, transposed: str = "") -> None:
    """`transposed`: their parameter that is our references' transpose."""
    ours = loss.references().vectors
    theirs = theirs.double()
    leaf = ours if not transposed else torch.nn.Parameter(ours.detach().T.clone())
    if transposed:
        setattr(theirs, transposed, leaf)
    else:
        theirs.proxies = ours
    found, expected = value(loss, problem.x, problem.labels), theirs(problem.x, problem.labels)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)
    mine = torch.autograd.grad(found, [problem.x, ours])
    other = torch.autograd.grad(expected, [problem.x, leaf])
    for a, b in zip(mine, (other[0], other[1].T if transposed else other[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-10)


# Ours by name and options, theirs, and their parameter that is our references transposed.
WITH_REFERENCES: dict[str, Callable[[Problem], tuple[str, dict[str, Any], Any, str]]] = {
    "proxy_anchor": lambda p: (
        "proxy_anchor",
        {"alpha": p.scale, "margin": p.margin},
        pml.ProxyAnchorLoss(p.classes, p.dim, margin=p.margin, alpha=p.scale),
        "",
    ),
    "normsoftmax": lambda p: (
        "normsoftmax",
        {"temperature": 1 / p.scale},
        pml.NormalizedSoftmaxLoss(p.classes, p.dim, temperature=1 / p.scale),
        "W",
    ),
    "cosface": lambda p: (
        "cosface",
        {"scale": p.scale, "margin": p.margin},
        pml.CosFaceLoss(p.classes, p.dim, scale=p.scale, margin=p.margin),
        "W",
    ),
    # their margin is in degrees
    "arcface": lambda p: (
        "arcface",
        {"scale": p.scale, "margin": 3 * p.margin},
        pml.ArcFaceLoss(p.classes, p.dim, scale=p.scale, margin=math.degrees(3 * p.margin)),
        "W",
    ),
    # theirs sums over all proxies; at scales above 64 it leaves out a probability of 0
    "proxy_nca": lambda p: (
        "proxy_nca",
        {"denominator": "all", "scale": p.scale},
        pml.ProxyNCALoss(p.classes, p.dim, softmax_scale=p.scale),
        "",
    ),
    "proxy_nca_pp": lambda p: (
        "proxy_nca_pp",
        {"temperature": 1 / p.scale},
        pml.ProxyNCALoss(p.classes, p.dim, softmax_scale=p.scale),
        "",
    ),
    "soft_triple": lambda p: (
        "soft_triple",
        {"centres": 3, "gamma": 0.1, "scale": p.scale, "margin": p.margin},
        pml.SoftTripleLoss(
            p.classes, p.dim, centers_per_class=3, la=p.scale, gamma=0.1, margin=p.margin
        ),
        "fc",
    ),
}


@pytest.mark.parametrize("name", list(WITH_REFERENCES))
@EXAMPLES
@given(problems())
def test_losses_with_references(name: str, p: Problem) -> None:
    loss, options, theirs, transposed = WITH_REFERENCES[name](p)
    compare(p, loss_of(loss, p, **options), theirs, transposed=transposed)


# Of multi_similarity: where at most one pair of each kind is mined the library's value is 0.
PAIRS: dict[str, tuple[str, dict[str, Any], Callable[[], Any]]] = {
    "contrastive": (
        "contrastive",
        {"pos_margin": 0.4, "margin": 0.7},
        lambda: pml.ContrastiveLoss(0.4, 0.7),
    ),
    "contrastive mean": (
        "contrastive",
        {"pos_margin": 0.1, "margin": 1.9, "average": "all"},
        lambda: pml.ContrastiveLoss(0.1, 1.9, reducer=MeanReducer()),
    ),
    "multi_similarity": (
        "multi_similarity",
        {"alpha": 18.0, "beta": 64.0, "threshold": 0.77, "mining": "none"},
        lambda: pml.MultiSimilarityLoss(18.0, 64.0, 0.77),
    ),
    "fastap": ("fastap", {"bins": 10}, lambda: pml.FastAPLoss(10)),
    "triplet_l2sq": (
        "triplet_l2sq",
        {"margin": 0.2, "mining": "all"},
        lambda: pml.TripletMarginLoss(0.2, distance=LpDistance(power=2)),
    ),
    "triplet_l2": (
        "triplet_l2",
        {"margin": 1.0, "mining": "all", "average": "mined"},
        lambda: pml.TripletMarginLoss(1.0, distance=LpDistance(), reducer=MeanReducer()),
    ),
}


@pytest.mark.parametrize("name", list(PAIRS))
@EXAMPLES
@given(st.lists(st.integers(0, 3), min_size=2, max_size=9))
def test_losses_of_pairs(name: str, classes: list[int]) -> None:
    loss, options, theirs = PAIRS[name]
    x, labels = batch([{label} for label in classes])
    expected = theirs()(x, torch.tensor(classes))
    same_value_and_gradients(value(made(loss, **options).double(), x, labels), expected, [x])


@EXAMPLES
@given(st.integers(1, 5), st.sampled_from([1e-3, 1.0, 10.0]))
def test_n_pair(pairs: int, scale: float) -> None:
    """Of four images of a class that library takes the first two; it normalises by default."""
    classes = [c for c in range(pairs) for _ in range(2)]
    x, labels = batch([{c} for c in classes])
    x = (scale * x).detach().requires_grad_()
    theirs = pml.NPairsLoss(distance=DotProductSimilarity(normalize_embeddings=False))
    found = value(made("n_pair", classes=pairs), x, labels)
    same_value_and_gradients(found, theirs(x, torch.tensor(classes)), [x])


@EXAMPLES
@given(problems(), st.integers(1, 5))
def test_sphereface(p: Problem, margin: int) -> None:
    """Theirs multiplies the logits by the embedding's length, ours by a constant; they agree on
    embeddings of length 1. Their margin is an integer."""
    loss = loss_of("sphereface", p, scale=p.scale, margin=float(margin))
    theirs = pml.SphereFaceLoss(p.classes, p.dim, margin=margin, scale=p.scale).double()
    theirs.W = torch.nn.Parameter(loss.references().vectors.detach().T.clone())
    unit = F.normalize(p.x, dim=1)
    found, expected = value(loss, unit, p.labels), theirs(unit, p.labels)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)
    # Of the gradient to x the part that changes the length is not shared: it ends at `unit`.
    mine = torch.autograd.grad(found, [p.x, loss.references().vectors], retain_graph=True)
    other = torch.autograd.grad(expected, [p.x, theirs.W], retain_graph=True)
    torch.testing.assert_close(mine[0], other[0], rtol=1e-6, atol=1e-10)
    torch.testing.assert_close(mine[1], other[1].T, rtol=1e-6, atol=1e-10)
