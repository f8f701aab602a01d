"""Scores by loops, and what geometry and pairs take short cuts for, by the long way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from trainables import streams
from trainables.losses.base import Geometry, make_pairs
from trainables.losses.geometry import normalize_to_unit, score


@pytest.mark.parametrize("shape", [(70, 256), (128, 64), (3, 5, 7), (1, 1)])
def test_unit_is_torchs_normalize_with_its_gradient_to_the_bit(shape: tuple[int, ...]) -> None:
    g = streams.create_generator(0, "unit")
    x, gradient = torch.randn(shape, generator=g), torch.randn(shape, generator=g)
    x[0] *= 1e-13  # shorter than what both take for zero
    found = []
    for way in (normalize_to_unit, lambda rows: F.normalize(rows, dim=-1)):
        leaf = x.clone().requires_grad_()
        made: Tensor = way(leaf)
        made.backward(gradient)
        assert leaf.grad is not None
        found.append((made.detach(), leaf.grad))
    assert all(torch.equal(*both) for both in zip(*found, strict=True))


@pytest.mark.parametrize("itself", [False, True])
def test_pairs_of_one_label_each_are_those_of_sets_of_one(itself: bool) -> None:
    labels = torch.tensor([0, 2, 1, -1, 2, 0])
    others = labels if itself else torch.tensor([0, 1, 2, -1])
    index = torch.arange(6) if itself else None
    one = make_pairs(labels, others, self_index=index)
    empty = torch.full((len(labels), 1), -1)
    of_sets = make_pairs(torch.cat([labels[:, None], empty], 1), others, self_index=index)
    assert torch.equal(one.pos, of_sets.pos) and torch.equal(one.neg, of_sets.neg)
    assert one.pos[0].sum() == 1 and one.pos[3].sum() == 0


def test_sets_meet_and_self_is_left_out_by_index() -> None:
    labels = torch.tensor([[0, 1], [1, 2], [3, -1], [3, -1]])
    pairs = make_pairs(labels, labels, self_index=torch.arange(4))
    assert pairs.pos.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert torch.equal(pairs.pos + pairs.neg, 1 - torch.eye(4))


@pytest.mark.parametrize("kind", ["cosine", "dot", "l2", "l2sq"])
@pytest.mark.parametrize("normalize", [True, False])
def test_scores_by_loops_and_safe_gradients_on_duplicates(kind: Any, normalize: bool) -> None:
    q = torch.randn(2, 4, 3, dtype=torch.float64, generator=streams.create_generator(0, "q", 1))
    q[:, 1] = q[:, 0]
    q.requires_grad_()
    s = score(q, q, Geometry(kind, normalize))
    for t in range(2):
        for i in range(4):
            for j in range(4):
                a, b = q[t, i], q[t, j]
                if normalize or kind == "cosine":
                    a, b = a / a.norm(), b / b.norm()
                expected = {
                    "cosine": a @ b,
                    "dot": a @ b,
                    "l2": -(a - b).norm(),
                    "l2sq": -(a - b).square().sum(),
                }[kind]
                assert s[t, i, j].item() == pytest.approx(expected.item(), abs=1e-6)
    (gradient,) = torch.autograd.grad(s.sum(), q)
    assert gradient.isfinite().all()
