"""Many embeddings of one split ranked at once: what `evaluate` gives of each."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor

from trainables.data.splits import Subset
from trainables.evaluation import many
from trainables.evaluation.many import rank_many, ranked_at_once
from trainables.evaluation.metrics import PER_EPOCH, evaluate
from trainables.evaluation.scores import PLAIN, PlainScore
from trainables.evaluation.tasks import TASKS

NAMES = (*PER_EPOCH, "recall_at_10", "map_at_1000")
LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 5, 5])  # of 3 there is one alone


def drawn(count: int, *, size: int = 12) -> Tensor:
    rows = torch.randn(count, size, 4, generator=torch.Generator().manual_seed(0))
    rows[0, 3] = rows[0, 4] = rows[0, 7]  # duplicates tie, also with another class
    return rows


def expected(rows: Tensor, score: str, labels: Tensor = LABELS) -> dict[str, float]:
    return evaluate(rows, labels, score=score, metrics=NAMES)


@pytest.mark.parametrize("score", list(PLAIN))
def test_each_is_what_evaluate_gives(score: str) -> None:
    rows = drawn(5)
    for one, found in zip(rows, rank_many(rows, LABELS, PLAIN[score], NAMES), strict=True):
        assert found == pytest.approx(expected(one, score), abs=1e-12)


def test_collapsed_embeddings_are_ranked_by_index() -> None:
    rows = torch.ones(2, 12, 4)
    (first, _) = rank_many(rows, LABELS, PLAIN["cosine"], NAMES)
    assert first == pytest.approx(expected(rows[0], "cosine"), abs=1e-12)


def test_others_do_not_matter_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drawn(5)
    whole = rank_many(rows, LABELS, PLAIN["euclidean"], NAMES)
    assert rank_many(rows[[3, 1]], LABELS, PLAIN["euclidean"], NAMES) == [whole[3], whole[1]]
    monkeypatch.setattr(many, "BLOCK_BYTES", 2 * many.BYTES_PER_PAIR * 12 * 12)
    assert rank_many(rows, LABELS, PLAIN["euclidean"], NAMES) == whole


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38])
@pytest.mark.parametrize("score", list(PLAIN))
def test_one_that_is_not_finite_is_told_alone(value: float, score: str) -> None:
    rows = drawn(3)
    calm = rank_many(rows, LABELS, PLAIN[score], NAMES)
    rows[1, 2, 0] = value
    found = rank_many(rows, LABELS, PLAIN[score], NAMES)
    assert (found[0], found[2]) == (calm[0], calm[2])
    if not (score == "cosine" and value == 3e38):  # which has a direction, if its norm has one
        assert found[1] is None


def test_what_is_not_defined_or_does_not_rank_is_left() -> None:
    assert rank_many(drawn(2), torch.arange(12), PLAIN["dot"], ("map_at_r",)) == [None, None]
    with pytest.raises(ValueError, match="nmi"):
        rank_many(drawn(2), LABELS, PLAIN["dot"], ("nmi",))


class Split:
    """As much of a subset as is asked for."""

    def __init__(self, size: int, queries: int | None) -> None:
        self.size, self.queries = size, queries

    def __len__(self) -> int:
        return self.size


SPLITS = [(4000, None), (4000, 4), (5000, None)]


def test_what_it_can_be_asked_of() -> None:
    whole, gallery, large = (cast(Subset, Split(n, cut)) for n, cut in SPLITS)
    plain = PlainScore("dot")
    assert ranked_at_once(plain, TASKS["retrieval"], whole)
    assert not ranked_at_once(plain, TASKS["retrieval"], gallery)
    assert not ranked_at_once(plain, TASKS["retrieval"], large), "more than a block of pairs"
    assert not ranked_at_once(plain, TASKS["classification"], whole)
    assert not ranked_at_once(lambda q, r: q @ r.T, TASKS["retrieval"], whole)
