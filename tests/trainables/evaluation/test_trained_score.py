"""Which score a trained network is evaluated with: the plain one of its geometry, or its own."""

from __future__ import annotations

import pytest
import torch

from trainables.core.assembly import Network, build_method
from trainables.evaluation.metrics import RANKING, evaluate_embeddings
from trainables.evaluation.scores import PlainScore
from trainables.losses.base import Geometry
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig


def network() -> Network:
    config = TrialConfig.model_validate({"embedding": {"dim": 8}})
    return Network(config, None, build_method(config, features=12, classes=4, seed=0), 12)


@pytest.mark.parametrize(
    "geometry",
    [Geometry(k, normalize=n) for k in ("cosine", "dot", "l2", "l2sq") for n in (True, False)],
)
def test_plain_score_ranks_as_the_networks_own(geometry: Geometry) -> None:
    made = network()
    made.method.loss.geometry = geometry  # type: ignore[misc]
    found = made.retrieval_score()
    assert isinstance(found, PlainScore)
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(90, 8, generator=g), torch.randint(9, (90,), generator=g)
    own = evaluate_embeddings(x, y, score=made.score, metrics=tuple(RANKING))
    assert evaluate_embeddings(x, y, score=found, metrics=tuple(RANKING)) == pytest.approx(
        own, abs=1e-12
    )


def test_a_methods_own_score_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(self: object, q: torch.Tensor, r: torch.Tensor, geometry: Geometry) -> torch.Tensor:
        return q @ r.mT - r[:, 0].abs()

    monkeypatch.setattr(METHODS["plain"], "score", own, raising=False)
    made = network()
    assert made.retrieval_score() == made.score
