"""N-pair and HypViT's losses, which pair up the images of a class."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.oracles import pairs as oracles
from tests.trainables.losses.cases import batch, made, same_value_and_gradients, value
from trainables import streams
from trainables.core.assembly import Network, build_method
from trainables.losses import geometry
from trainables.losses.base import Geometry, Traits
from trainables.methods.plain import Plain
from trainables.trial import TrialConfig

CLASSES = {
    "pairs": [0, 0, 1, 1, 2, 2, 3, 3],
    "threes": [4, 4, 4, 0, 0, 0, 2, 2, 2],
    "fours": [1, 1, 1, 1, 3, 3, 3, 3],
    "mixed": [2, 0, 1, 0, 2, 1, 0, 1],
    "uneven": [0, 1, 1, 1, 1, 2, 2, 3],
    "one class": [2, 2, 2],
    "all differ": [0, 1, 2],
}


def of(classes: list[int], *, duplicates: bool = False) -> tuple[Tensor, Tensor]:
    return batch([{c} for c in classes], duplicates=duplicates)


@pytest.mark.parametrize("case", list(CLASSES))
@pytest.mark.parametrize("scale", [None, 0.3])
def test_n_pair_by_loops(case: str, scale: float | None) -> None:
    x, labels = of(CLASSES[case])
    expected = oracles.n_pair((scale or 1) ** 0.5 * x, CLASSES[case], x.new_zeros(()))
    same_value_and_gradients(value(made("n_pair", scale=scale), x, labels), expected, [x])


def test_n_pair_of_scale_1_is_that_without_scale() -> None:
    config = made("n_pair", scale=1.0).options
    assert config == made("n_pair").options


def test_n_pair_keeps_embeddings_small_and_retrieves_by_direction() -> None:
    loss = made("n_pair", norm_weight=0.3)
    x = torch.randn(2, 5, 4, generator=streams.create_generator(0, "x"))
    term, weight = loss.query_penalty(x)["norm"]
    assert weight == 0.3
    squares = [sum(v * v for v in row.tolist()) for row in x.flatten(0, 1)]
    assert term.item() == pytest.approx(sum(squares) / len(squares) / 2, rel=1e-6)
    assert loss.retrieval == Geometry("cosine")
    assert made("n_pair", compare_by="dot").retrieval == Geometry("dot", normalize=False)


@pytest.mark.parametrize("case", list(CLASSES))
@pytest.mark.parametrize("temperature", [0.1, 0.9])
def test_sphere_by_loops(case: str, temperature: float) -> None:
    x, labels = of(CLASSES[case])
    s = oracles.cosines(x)
    expected = oracles.pairwise_entropy(s, CLASSES[case], temperature, x.new_zeros(()))
    found = value(made("sphvit", temperature=temperature), x, labels)
    same_value_and_gradients(found, expected, [x])


@pytest.mark.parametrize("case", list(CLASSES))
@pytest.mark.parametrize(
    ("curvature", "clip", "temperature"), [(0.1, 2.3, 0.2), (1.0, 0.9, 0.2), (3.0, 2.1, 1.0)]
)
def test_hyperbolic_by_loops(case: str, curvature: float, clip: float, temperature: float) -> None:
    x, labels = of(CLASSES[case])

    def s(i: int, j: int) -> Tensor:
        return -oracles.mobius_distance(x[i], x[j], curvature, clip)

    expected = oracles.pairwise_entropy(s, CLASSES[case], temperature, x.new_zeros(()))
    loss = made("hypvit", curvature=curvature, clip=clip, temperature=temperature)
    same_value_and_gradients(value(loss, x, labels), expected, [x])


@pytest.mark.parametrize("case", ["pairs", "threes", "fours", "one class"])
def test_over_classes_is_the_sum_over_views_of_the_authors_code(case: str) -> None:
    x, labels = of(CLASSES[case])
    s = oracles.cosines(x)
    expected = oracles.summed_over_views(s, CLASSES[case], 0.1, x.new_zeros(()))
    found = value(made("sphvit", over="classes"), x, labels)
    same_value_and_gradients(found, expected, [x])
    m = len(CLASSES[case]) // len(set(CLASSES[case]))
    torch.testing.assert_close(found, m * (m - 1) * value(made("sphvit"), x, labels))


# --- geometry -------------------------------------------------------------------------------------


def by_mobius_addition(q: Tensor, r: Tensor, c: float, clip: float | None) -> Tensor:
    """[B, D] × [R, D] → [B, R]; tangent vectors beyond the edge of the ball are clipped there."""
    edge = math.atanh(0.999) / math.sqrt(c)
    clip = edge if clip is None else min(clip, edge)
    return torch.stack(
        [torch.stack([-oracles.mobius_distance(a, b, c, clip) for b in r]) for a in q]
    )


@pytest.mark.parametrize(("c", "clip"), [(0.1, 2.3), (1.0, None), (3.0, 0.9)])
@pytest.mark.parametrize("length", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("apart", [0.0, 1e-7, 1e-5, 1e-2])
def test_float32_near_zero_is_the_oracle_in_float64(
    c: float, clip: float | None, length: float, apart: float
) -> None:
    """Of equal points, of neighbours in float32, and of points on the edge: the value and the
    gradient that loops in float64 give for the very same numbers, to the rounding of float32."""
    q = length * torch.randn(4, 6, generator=streams.create_generator(0, "q"))
    r = q * (1 + apart * torch.randn(4, 6, generator=streams.create_generator(0, "r")))
    assert torch.equal(q, r) == (apart == 0)
    single = [q.clone().requires_grad_(), r.clone().requires_grad_()]
    double = [q.double().requires_grad_(), r.double().requires_grad_()]
    found = geometry.score(single[0], single[1], Geometry("hyperbolic", False, c, clip))
    expected = by_mobius_addition(double[0], double[1], c, clip)
    assert found.dtype == torch.float32
    assert (found.diagonal() == 0).all() == (apart == 0)
    torch.testing.assert_close(found.double(), expected, rtol=1e-7, atol=0)

    weight = torch.randn(found.shape, generator=streams.create_generator(0, "w"))
    ours = torch.autograd.grad((weight * found).sum(), single)
    loops = torch.autograd.grad((weight.double() * expected).sum(), double)
    for mine, theirs in zip(ours, loops, strict=True):
        scale = theirs.abs().max().item()
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-6, atol=1e-7 * scale)


@pytest.mark.parametrize("few", [True, False])
def test_retrieval_takes_a_product_and_is_as_exact(
    few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = torch.randn(60, 6, generator=streams.create_generator(0, "q"))
    near = q[:20] * (1 + 1e-6 * torch.randn(20, 6, generator=streams.create_generator(0, "n")))
    r = torch.cat([torch.randn(20, 6, generator=streams.create_generator(0, "r")), q[:20], near])
    r = r if few else q[:1] + 1e-5 * r  # a collapsed network's
    whole = Geometry("hyperbolic", False, 0.1, 2.3)
    expected = geometry.score(q if few else r[:30], r, whole)
    with monkeypatch.context() as patch, torch.inference_mode():
        if few:
            patch.setattr(
                geometry, "subtract_and_norm", lambda *_: pytest.fail("all were subtracted")
            )
        found = geometry.score(q if few else r[:30], r, whole)
    torch.testing.assert_close(found, expected, rtol=2**-23, atol=0)


def test_retrieval_of_hypvit_is_its_own_distance() -> None:
    config = TrialConfig(loss={"name": "hypvit"}, embedding={"dim": 8})
    method = build_method(config, features=12, classes=4, seed=0)
    network = Network(config, None, method, 12).eval()
    x = 5 * torch.randn(7, 12, generator=streams.create_generator(0, "x"))
    z = network.embed(x)
    assert z.norm(dim=-1).max() <= 2.3 + 1e-5
    score = network.retrieval_score()
    raw = method.head(x)  # type: ignore[operator]
    # What is stored is clipped in float32, the raw vectors in float64: entries of z are off by up
    # to 2.3 · 2⁻²⁴, distances by their length times 2 cosh²(√0.1 · 2.3).
    bound = 2 * 2 * math.cosh(0.1**0.5 * 2.3) ** 2 * math.sqrt(8) * 2.3 * 2**-24
    torch.testing.assert_close(
        score(z, z), geometry.score(raw, raw, method.loss.geometry), atol=bound, rtol=1e-6
    )
    assert torch.equal(score(z, z).diagonal(), torch.zeros(7))
    assert torch.equal(score(z, z).argmax(1), torch.arange(7))


@pytest.mark.parametrize("loss", ["n_pair", "hypvit", "sphvit"])
def test_label_sets_are_refused(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plain, "describe_traits", classmethod(lambda *_: Traits(label_sets=True)))
    with pytest.raises(ValidationError, match=f"loss {loss} pairs up"):
        TrialConfig(loss={"name": loss})
