"""Losses with references as in pytorch-metric-learning, on random problems in float64.

What a problem holds: classes of one image, classes without any, duplicates of an embedding
under one label or two, and two proxies that tie. What the definitions do not share, and how a
problem is restricted so that they do, each test states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.regularizers import SparseCentersRegularizer
from torch import Tensor

from tests.trainables.losses.cases import made, same_value_and_gradients, value
from trainables import streams
from trainables.losses.base import Loss

EXAMPLES = settings(max_examples=25, deadline=None)


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
    draws = streams.generator(draw(st.integers(0, 2**32)), "problem")
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


@EXAMPLES
@given(problems())
def test_proxy_anchor(p: Problem) -> None:
    loss = loss_of("proxy_anchor", p, alpha=p.scale, margin=p.margin)
    compare(p, loss, pml.ProxyAnchorLoss(p.classes, p.dim, margin=p.margin, alpha=p.scale))


@EXAMPLES
@given(problems())
def test_normsoftmax(p: Problem) -> None:
    loss = loss_of("normsoftmax", p, temperature=1 / p.scale)
    theirs = pml.NormalizedSoftmaxLoss(p.classes, p.dim, temperature=1 / p.scale)
    compare(p, loss, theirs, transposed="W")


@EXAMPLES
@given(problems())
def test_cosface(p: Problem) -> None:
    loss = loss_of("cosface", p, scale=p.scale, margin=p.margin)
    theirs = pml.CosFaceLoss(p.classes, p.dim, scale=p.scale, margin=p.margin)
    compare(p, loss, theirs, transposed="W")


@EXAMPLES
@given(problems(), st.floats(0.01, 3.1))
def test_arcface(p: Problem, margin: float) -> None:
    """Their margin is in degrees."""
    loss = loss_of("arcface", p, scale=p.scale, margin=margin)
    theirs = pml.ArcFaceLoss(p.classes, p.dim, scale=p.scale, margin=math.degrees(margin))
    compare(p, loss, theirs, transposed="W")


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


def test_sphereface_differs_where_lengths_do() -> None:
    loss = made("sphereface", margin=2.0, scale=1.0).double()
    x = torch.randn(4, 4, dtype=torch.float64, generator=streams.generator(0, "x"))
    theirs = pml.SphereFaceLoss(5, 4, margin=2, scale=1).double()
    theirs.W = torch.nn.Parameter(loss.references().vectors.detach().T.clone())
    labels = torch.tensor([0, 1, 2, 2])
    torch.testing.assert_close(value(loss, 3 * x, labels), value(loss, x, labels))
    assert (theirs(3 * x, labels) - theirs(x, labels)).abs() > 1e-3


@EXAMPLES
@given(problems())
def test_proxy_nca(p: Problem) -> None:
    """Theirs sums over all proxies, the option "all"; a query whose probability underflows to 0
    they leave out of the mean, at scales above 64 or so, where ours keeps its finite loss."""
    loss = loss_of("proxy_nca", p, denominator="all", scale=p.scale)
    compare(p, loss, pml.ProxyNCALoss(p.classes, p.dim, softmax_scale=p.scale))
    plus = loss_of("proxy_nca_pp", p, temperature=1 / p.scale)
    compare(p, plus, pml.ProxyNCALoss(p.classes, p.dim, softmax_scale=p.scale))


def test_proxy_nca_as_printed_is_another_loss_than_theirs() -> None:
    loss = made("proxy_nca").double()
    theirs = pml.ProxyNCALoss(5, 4, softmax_scale=1).double()
    theirs.proxies = loss.references().vectors
    x = torch.randn(3, 4, dtype=torch.float64, generator=streams.generator(0, "x"))
    labels = torch.tensor([0, 1, 1])
    near = torch.exp(-theirs.distance(x, loss.references().vectors))
    far = near.clone()
    far[torch.arange(3), labels] = 0
    gap = torch.log(near.sum(1)) - torch.log(far.sum(1))
    found, expected = value(loss, x, labels), theirs(x, labels) - gap.mean()
    same_value_and_gradients(found, expected, [loss.references().vectors])


@EXAMPLES
@given(problems(), st.integers(1, 4), st.sampled_from([0.1, 1.0]))
def test_soft_triple(p: Problem, centres: int, gamma: float) -> None:
    loss = loss_of("soft_triple", p, centres=centres, gamma=gamma, scale=p.scale, margin=p.margin)
    theirs = pml.SoftTripleLoss(
        p.classes, p.dim, centers_per_class=centres, la=p.scale, gamma=gamma, margin=p.margin
    )
    compare(p, loss, theirs, transposed="fc")


@EXAMPLES
@given(st.integers(1, 6), st.integers(2, 5), st.integers(2, 7))
def test_distances_of_centres(classes: int, centres: int, dim: int) -> None:
    """Theirs has an infinite gradient where two centres coincide (float64), ours 0."""
    loss = made("soft_triple", classes=classes, dim=dim, centres=centres).double()
    theirs = SparseCentersRegularizer(classes, centres)
    same_value_and_gradients(loss.penalty()["centres"][0], theirs(loss.centres), [loss.centres])
