"""Losses as in pytorch-metric-learning, on random problems in float64.

A problem has classes of one image, classes without any, equal embeddings under two labels, and two
proxies that tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import CosineSimilarity, DotProductSimilarity, LpDistance
from pytorch_metric_learning.reducers import MeanReducer

from tests.trainables.losses.cases import C, D, batch, made, same_value_and_gradients, value

CLASSES = [
    [0, 0, 1, 1, 3, 3, 3, 2],
    [4, 4],
    [0, 1, 2, 3],
    [2, 2, 2, 0, 0, 4, 1, 1, 0, 2],
]
# name → our options and their loss, of scale and margin; their parameter that is our references,
# and whether it is their transpose
Theirs = Callable[[float, float], tuple[dict[str, Any], Any]]
WITH_REFERENCES: dict[str, tuple[Theirs, str, bool]] = {
    "proxy_anchor": (
        lambda s, m: ({"alpha": s, "margin": m}, pml.ProxyAnchorLoss(C, D, margin=m, alpha=s)),
        "proxies",
        False,
    ),
    "normsoftmax": (
        lambda s, m: ({"temperature": 1 / s}, pml.NormalizedSoftmaxLoss(C, D, temperature=1 / s)),
        "W",
        True,
    ),
    "cosface": (
        lambda s, m: ({"scale": s, "margin": m}, pml.CosFaceLoss(C, D, scale=s, margin=m)),
        "W",
        True,
    ),
    "arcface": (  # their margin is in degrees
        lambda s, m: (
            {"scale": s, "margin": 3 * m},
            pml.ArcFaceLoss(C, D, scale=s, margin=math.degrees(3 * m)),
        ),
        "W",
        True,
    ),
    "proxy_nca": (
        lambda s, m: (
            {"denominator": "all", "scale": s},
            pml.ProxyNCALoss(C, D, softmax_scale=s),
        ),
        "proxies",
        False,
    ),
    "proxy_nca_pp": (
        lambda s, m: ({"temperature": 1 / s}, pml.ProxyNCALoss(C, D, softmax_scale=s)),
        "proxies",
        False,
    ),
    "soft_triple": (
        lambda s, m: (
            {"centres": 3, "scale": s, "margin": m},
            pml.SoftTripleLoss(C, D, centers_per_class=3, la=s, gamma=0.1, margin=m),
        ),
        "fc",
        True,
    ),
}


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize(("scale", "margin"), [(1.0, 0.5), (32.0, 0.1), (64.0, 0.9)])
@pytest.mark.parametrize("name", list(WITH_REFERENCES))
def test_losses_with_references(name: str, scale: float, margin: float, classes: list[int]) -> None:
    build, parameter, transposed = WITH_REFERENCES[name]
    options, theirs = build(scale, margin)
    loss = made(name, **options).double()
    vectors = loss.references().vectors
    with torch.no_grad():
        vectors[1] = vectors[0]
    x, labels = batch([{c} for c in classes], duplicates=True)
    theirs = theirs.double()
    own = torch.nn.Parameter(vectors.detach().T.clone() if transposed else vectors.detach())
    setattr(theirs, parameter, own)
    ours, expected = value(loss, x, labels), theirs(x, torch.tensor(classes))
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-12)
    gradients = torch.autograd.grad(ours, [x, vectors])
    of_x, of_references = torch.autograd.grad(expected, [x, own])
    torch.testing.assert_close(gradients[0], of_x, rtol=1e-6, atol=1e-10)
    of_references = of_references.T if transposed else of_references
    torch.testing.assert_close(gradients[1], of_references, rtol=1e-6, atol=1e-10)


# Of multi_similarity: where at most one pair of each kind is mined the library's value is 0.
PAIRS: list[tuple[str, dict[str, Any], Any]] = [
    ("contrastive", {"pos_margin": 0.4, "margin": 0.7}, pml.ContrastiveLoss(0.4, 0.7)),
    (
        "contrastive",
        {"pos_margin": 0.1, "margin": 1.9, "average": "all"},
        pml.ContrastiveLoss(0.1, 1.9, reducer=MeanReducer()),
    ),
    (
        "multi_similarity",
        {"alpha": 18.0, "beta": 64.0, "threshold": 0.77, "mining": "none"},
        pml.MultiSimilarityLoss(18.0, 64.0, 0.77),
    ),
    ("fastap", {"bins": 10}, pml.FastAPLoss(10)),
    ("supcon", {"temperature": 0.3}, pml.SupConLoss(0.3)),
    (
        "roadmap",  # its second half alone
        {"calibration": 1.0},
        pml.ContrastiveLoss(0.9, 0.6, distance=CosineSimilarity()),
    ),
    (
        "triplet_l2sq",
        {"margin": 0.2, "mining": "all"},
        pml.TripletMarginLoss(0.2, distance=LpDistance(power=2)),
    ),
    (
        "triplet_l2",
        {"margin": 1.0, "mining": "all", "average": "mined"},
        pml.TripletMarginLoss(1.0, distance=LpDistance(), reducer=MeanReducer()),
    ),
    # it takes the first two images of a class
    (
        "n_pair",
        {},
        pml.NPairsLoss(distance=DotProductSimilarity(normalize_embeddings=False)),
    ),
]


@pytest.mark.parametrize("classes", [*CLASSES, [0, 0, 1, 1, 2, 2]])
@pytest.mark.parametrize(("name", "options", "theirs"), PAIRS)
def test_losses_of_pairs(
    name: str, options: dict[str, Any], theirs: Any, classes: list[int]
) -> None:
    if name == "n_pair" and len(classes) != 2 * len(set(classes)):
        pytest.skip("the definitions agree on one pair of each class alone")
    x, labels = batch([{c} for c in classes])
    loss = made(name, **options).double()
    same_value_and_gradients(value(loss, x, labels), theirs(x, torch.tensor(classes)), [x])
