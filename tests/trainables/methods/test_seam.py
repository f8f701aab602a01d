"""The seam holds the hard cases: throw-away losses and methods, each checked by pair loops.

None of these is a product; they exist to show that `losses/base.py` and `methods/base.py` carry
what the papers need before anything is built on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables import streams
from trainables.config.network import EmbeddingConfig
from trainables.config.registry import ComponentConfig
from trainables.losses import geometry
from trainables.losses.base import (
    BatchNeeds,
    Geometry,
    Loss,
    Pairs,
    ParamGroup,
    References,
    make_pairs,
)
from trainables.losses.proxy_anchor import ProxyAnchor
from trainables.methods.base import Batch, Method, Progress, State, Term
from trainables.methods.plain import Plain

B, FEATURES, D, C = 8, 12, 6, 4
NOTHING = ComponentConfig()


def gen(name: str) -> torch.Generator:
    return streams.generator(0, name, 1)


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(B, FEATURES, generator=gen("x")), torch.arange(C).repeat_interleave(2)


def attach(method: type[Method], loss: Loss, config: ComponentConfig = NOTHING) -> Any:
    with streams.seeded(0, "init", "method"):
        return method(
            config, features=FEATURES, embedding=EmbeddingConfig(dim=D), loss=loss, classes=C
        )


def step(method: Method, features: Tensor, labels: Tensor) -> dict[str, Term]:
    state = method(features, labels, Progress(), gen("method"))
    terms = method.terms(state, labels, Progress(), gen("loss"))
    total = torch.stack([term.weight * term.value for term in terms.values()]).sum()
    total.backward()
    for group in method.param_groups("main"):
        for parameter in group.params:
            assert parameter.grad is not None
            assert parameter.grad.isfinite().all()
            assert parameter.grad.abs().sum() > 0, group.role
    return terms


class Contrastive(Loss):
    """Distance loss with a margin; no references. Leading dimensions are meaned."""

    geometry = Geometry("l2", normalize=False)

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        distance = -score
        pos = (pairs.pos * distance).sum((-2, -1)) / pairs.pos.sum().clamp_min(1)
        neg = (pairs.neg * F.relu(4 - distance)).sum((-2, -1)) / pairs.neg.sum().clamp_min(1)
        return (pos + neg).mean()


# --- IDML: a layout of its own, label sets, its own score --------------------------------------


class Introspective(Plain):
    """[s | u]: two heads; s_ij = cos · exp(−‖u_i + u_j‖ / τ'); mixup gives sets {l1, l2}."""

    def __init__(self, config: ComponentConfig, **parts: Any) -> None:
        super().__init__(config, **parts)
        with streams.part("uncertainty"):
            self.uncertainty = nn.Linear(FEATURES, D)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        n = len(batch.inputs)
        order = torch.randperm(n, generator=generator)
        share = torch.rand(n, 1, generator=generator)
        mixed = share * batch.inputs + (1 - share) * batch.inputs[order]
        return Batch(mixed, torch.cat([batch.labels, batch.labels[order]], 1))

    def forward(
        self, features: Tensor, labels: Tensor, progress: Progress, generator: Any
    ) -> State:
        return State(torch.cat([self.head(features), self.uncertainty(features)], -1))

    def embed(self, features: Tensor, geometry: Geometry | None = None) -> Tensor:
        return self.as_query(self.head(features))  # s alone: u = 0 leaves the cosine

    def as_query(self, vectors: Tensor) -> Tensor:
        return torch.cat([vectors, torch.zeros_like(vectors)], -1)

    def score(self, query: Tensor, reference: Tensor, geometry_: Geometry) -> Tensor:
        cosine = geometry.score(query[..., :D], reference[..., :D], geometry_)
        u = query[..., :, None, D:] + reference[..., None, :, D:]
        return cosine * torch.exp(-geometry.safe_sqrt(u.square().sum(-1)) / 5)

    def param_groups(self, phase: str) -> list[ParamGroup]:
        return [
            *super().param_groups(phase),
            ParamGroup("head", list(self.uncertainty.parameters())),
        ]


def test_label_sets_and_a_methods_own_score() -> None:
    features, labels = batch()
    with streams.seeded(0, "init", "loss"):
        loss = ProxyAnchor(ProxyAnchor.Config(), classes=C, dim=D)
    method = attach(Introspective, loss)
    mixed = method.prepare(Batch(features, labels[:, None]), gen("prepare"))
    assert mixed.labels.shape == (B, 2)
    terms = step(method, mixed.inputs, mixed.labels)

    s = F.normalize(method.head(mixed.inputs), dim=1).double()
    u = method.uncertainty(mixed.inputs).double()
    p = F.normalize(loss.proxies, dim=1).double()
    pos_total, neg_total, present = 0.0, 0.0, 0
    for c in range(C):
        up, down = 1.0, 1.0
        has = False
        for i in range(B):
            closeness = (s[i] @ p[c]).item() * math.exp(-u[i].norm().item() / 5)
            if c in mixed.labels[i].tolist():
                up, has = up + math.exp(-32 * (closeness - 0.1)), True
            else:
                down += math.exp(32 * (closeness + 0.1))
        present += has
        pos_total, neg_total = pos_total + math.log(up), neg_total + math.log(down)
    assert terms["metric"].value.item() == pytest.approx(
        pos_total / present + neg_total / C, rel=1e-5
    )
    embedded = method.embed(features)
    retrieval = method.score(embedded, embedded, loss.geometry)
    s = F.normalize(method.head(features), dim=1)
    torch.testing.assert_close(retrieval, s @ s.T)


def test_sets_meet_and_self_is_left_out_by_index() -> None:
    labels = torch.tensor([[0, 1], [1, 2], [3, -1], [3, -1]])
    pairs = make_pairs(labels, labels, self_index=torch.arange(4))
    assert pairs.pos.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert torch.equal(pairs.pos + pairs.neg, 1 - torch.eye(4))


# --- DVML: T samples in one pass, a distance loss ----------------------------------------------


@dataclass(frozen=True)
class Generated(State):
    generated: Tensor  # [T, B, D]


class Variational(Plain):
    def forward(
        self, features: Tensor, labels: Tensor, progress: Progress, generator: Any
    ) -> State:
        z = self.head(features)
        return Generated(z, z + 0.1 * torch.randn(5, *z.shape, generator=generator))

    def terms(self, state: Any, labels: Tensor, progress: Progress, generator: Any) -> Any:
        found = super().terms(state, labels, progress, generator)
        found["generated"] = Term(self.metric(state.generated, labels, generator), 0.1)
        return found


def test_t_samples_in_one_pass_with_a_distance_loss() -> None:
    features, labels = batch()
    method = attach(Variational, Contrastive(NOTHING, classes=C, dim=D))
    terms = step(method, features, labels)
    state = method(features, labels, Progress(), gen("method"))
    each = []
    for z in state.generated.double():
        pos, neg = [], []
        for i in range(B):
            for j in range(B):
                if i == j:
                    continue
                d = (z[i] - z[j]).norm().item()
                (pos if labels[i] == labels[j] else neg).append(
                    d if labels[i] == labels[j] else max(0.0, 4 - d)
                )
        each.append(sum(pos) / len(pos) + sum(neg) / len(neg))
    assert terms["generated"].value.item() == pytest.approx(sum(each) / 5, rel=1e-5)


# --- SoftTriple: several references per class, class-major, a penalty --------------------------


class SoftTriple(Loss):
    K = 3

    def __init__(self, config: ComponentConfig, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.centres = nn.Parameter(torch.randn(classes * self.K, dim))

    def references(self) -> References:
        return References(
            self.centres, torch.arange(self.classes).repeat_interleave(self.K), self.K
        )

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        s = score.reshape(*score.shape[:-1], self.classes, self.K)
        relaxed = (s.softmax(-1) * s).sum(-1)
        target = pairs.pos.reshape(*pairs.pos.shape[:-1], self.classes, self.K)[..., 0]
        return -(target * (20 * (relaxed - 0.01 * target)).log_softmax(-1)).sum(-1).mean()

    def penalty(self) -> dict[str, tuple[Tensor, float | Tensor]]:
        c = F.normalize(self.centres, dim=-1).view(self.classes, self.K, -1)
        upper = torch.ones(self.K, self.K).triu(1)
        gap = geometry.safe_sqrt((2 - 2 * c @ c.mT).clamp_min(0))
        return {"centres": ((gap * upper).sum() / (self.classes * self.K * (self.K - 1)), 0.2)}


def test_several_references_per_class_and_a_penalty() -> None:
    features, labels = batch()
    torch.manual_seed(0)
    loss = SoftTriple(NOTHING, classes=C, dim=D)
    terms = step(attach(Plain, loss), features, labels)
    assert list(terms) == ["metric", "centres"]
    assert terms["centres"].weight == 0.2
    method = attach(Plain, loss)
    z = F.normalize(method.head(features), dim=1).double()
    centres = F.normalize(loss.centres, dim=1).double().view(C, 3, D)
    total = 0.0
    for i in range(B):
        logits = []
        for c in range(C):
            s = [(z[i] @ centres[c, k]).item() for k in range(3)]
            weight = [math.exp(x) for x in s]
            relaxed = sum(w * x for w, x in zip(weight, s, strict=True)) / sum(weight)
            logits.append(20 * (relaxed - 0.01 * (c == int(labels[i]))))
        total -= logits[int(labels[i])] - math.log(sum(math.exp(x) for x in logits))
    assert terms["metric"].value.item() == pytest.approx(total / B, rel=1e-5)


# --- Margin: learnable β per class, distance-weighted sampling ---------------------------------


class Margin(Loss):
    geometry = Geometry("l2", normalize=True)

    def __init__(self, config: ComponentConfig, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.beta = nn.Parameter(torch.full((classes,), 1.2))

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        d = -score
        with torch.no_grad():
            near = d.clamp_min(0.5)
            log_w = (2 - self.dim) * near.log()
            log_w = log_w - (self.dim - 3) / 2 * (1 - 0.25 * near.square()).clamp_min(1e-8).log()
            weights = (log_w - log_w.amax(-1, keepdim=True)).exp() * pairs.neg * (d < 1.9)
            weights = weights + 1e-12 * pairs.neg
            drawn = torch.multinomial(weights, 1, generator=generator)
        beta = self.beta[pairs.labels[:, :1]]
        pos = (pairs.pos * F.relu(0.2 + d - beta)).sum() / pairs.pos.sum()
        return pos + F.relu(0.2 + beta - d.gather(-1, drawn)).mean()

    def penalty(self) -> dict[str, tuple[Tensor, float | Tensor]]:
        return {"beta": (self.beta.sum(), 0.001)}

    def param_groups(self) -> list[ParamGroup]:
        return [ParamGroup("margins", [self.beta])]


def test_learnable_margins_and_sampling_by_a_named_stream() -> None:
    features, labels = batch()
    method = attach(Plain, Margin(NOTHING, classes=C, dim=D))
    first = step(method, features, labels)["metric"].value
    method.zero_grad()
    assert torch.equal(step(method, features, labels)["metric"].value, first)
    assert {g.role for g in method.param_groups("main")} == {"head", "margins"}


# --- N-pair: class-major batches, dot products -------------------------------------------------


class NPair(Loss):
    geometry = Geometry("dot", normalize=False)
    batch = BatchNeeds(per_class=2, layout="class_major")

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        anchors_to_positives = score[..., 0::2, 1::2]
        n = anchors_to_positives.shape[-1]
        return F.cross_entropy(anchors_to_positives.reshape(-1, n), torch.arange(n))


def test_class_major_batches() -> None:
    features, labels = batch()
    method = attach(Plain, NPair(NOTHING, classes=C, dim=D))
    value = step(method, features, labels)["metric"].value.item()
    z = method.head(features).double()
    total = 0.0
    for a in range(C):
        others = sum(
            math.exp((z[2 * a] @ z[2 * p + 1] - z[2 * a] @ z[2 * a + 1]).item())
            for p in range(C)
            if p != a
        )
        total += math.log(1 + others)
    assert value == pytest.approx(total / C, rel=1e-5)


# --- geometry ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cosine", "dot", "l2", "l2sq"])
@pytest.mark.parametrize("normalize", [True, False])
def test_scores_by_loops_and_safe_gradients_on_duplicates(kind: Any, normalize: bool) -> None:
    q = torch.randn(2, 4, 3, dtype=torch.float64, generator=gen("q"))
    q[:, 1] = q[:, 0]
    q.requires_grad_()
    s = geometry.score(q, q, Geometry(kind, normalize))
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
