"""Recall@k surrogate (RS@k): smooth recall at several k, with similarity mixup (SiMix).

Shape legend: B queries, which are the references too · P positives · K values of k · `...` leading
dimensions.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range
from trainables.config.registry import NamedConfig
from trainables.losses import smooth_ranks
from trainables.losses.base import (
    LOSSES,
    BatchNeeds,
    Loss,
    Pairs,
    Traits,
    Trial,
    check_one_label,
    make_pairs,
)


@LOSSES.register("recall_at_k")
class RecallAtK(Loss):
    """Maximise a smooth recall at several k, in large batches:

        r(q, x) = 1 + Σ_{j≠x} σ((s_qj − s_qx) / τ₂)
        R_k(q)  = min(k, Σ_{x∈P_q} σ((k − r(q, x)) / τ₁)) / min(k, |P_q|)
        L       = 1 − mean over queries q and over k of R_k(q),   s = cosine

    P_q: the other items of q's class. j: all items of the batch but q, as in retrieval.
    The minimum in the numerator ends the pull of a query once k positives are in front.
    Queries without positives are left out; a batch without positive pairs gives 0.

    Deviations: in the authors' code j includes q, so every rank is one too large (`include_query`).

    The authors train with 4,000 images a batch: `training.micro_batch` passes them through the
    backbone in parts, with the gradient of the whole batch. The loss itself keeps all B² cosines in
    memory. With `simix` and M images of each class, B grows to B (M + 1) / 2.

    Example:
        >>> loss = RecallAtK(RecallAtK.Config(), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(1 - torch.cdist(x, x), pairs).item(), 3)
        0.163

    References:
        Patel, Tolias and Matas, "Recall@k surrogate loss with large batches and similarity mixup",
        CVPR 2022. https://arxiv.org/abs/2108.11179. The equations are those of the authors' code,
        src/losses.py and src/mixup.py of https://github.com/yash0307/RecallatK_surrogate.
    """

    REVISION = 1
    batch = BatchNeeds(per_class=2)

    class Config(NamedConfig):
        """k: values of k, [1, 2, 4, 8, 16] in the authors' code for all data sets.
        temperature: τ₂ of the step between similarities; 0.01 in the authors' code.
        rank_temperature: τ₁ of the step between ranks; 1 in the authors' code, τ₁ = k in
            some of its versions.

        simix: whether virtual items are added to the batch (`mix_similarities`).
        include_query: whether a query is an item of its own list, as in the authors' code.
        Sources: k: the authors' code; simix: this project, off; include_query: retrieval.
        """

        name: Literal["recall_at_k"] = "recall_at_k"
        k: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 2, 4, 8, 16), min_length=1)
        temperature: float = Field(
            0.01, gt=0, le=10, **log_range(0.003, 0.1, "0.01 in the authors' code")
        )
        rank_temperature: float = Field(
            1.0, gt=0, le=100, **log_range(0.3, 3, "1 in the authors' code")
        )
        simix: bool = False
        include_query: bool = False

    options: Config

    @classmethod
    def check(cls, trial: Trial, method: Traits) -> None:
        assert isinstance(trial.loss, cls.Config)
        if trial.loss.simix:
            check_one_label(trial, method, "with simix mixes images of one class")

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the mean over queries, and virtual ones, of 1 − the mean of smooth recalls."""
        options = self.options
        if options.simix:
            score, pairs = mix_similarities(score, pairs, generator)
        listed = pairs.pos + pairs.neg
        if options.include_query:
            listed = smooth_ranks.add_queries(listed)
        positive_score, in_use = smooth_ranks.gather_positives(score, pairs.pos)
        # the sum over the list has σ(0) = 1/2 of the positive itself
        closer = smooth_ranks.sum_steps(
            score, positive_score, listed, lambda x: (x / options.temperature).sigmoid()
        )
        rank = 0.5 + closer
        k = torch.tensor(options.k, dtype=score.dtype, device=score.device)
        hits = ((k - rank[..., None]) / options.rank_temperature).sigmoid()  # [..., B, P, K]
        hits = (hits * in_use[..., None]).sum(-2).minimum(k)
        possible = in_use.sum(-1)[:, None].minimum(k).clamp_min(1)
        return smooth_ranks.average_over_queries(1 - (hits / possible).mean(-1), pairs.pos)


def mix_similarities(
    score: Tensor, pairs: Pairs, generator: Generator | None
) -> tuple[Tensor, Pairs]:
    """Add a virtual item for each pair of images of a class to the batch (SiMix).

    The virtual item of images a and b is v = w z_a + (1 − w) z_b with w uniform in [0, 1), not
    normalised, of the same class. Its similarities are mixtures of those of a and b, so that the
    embeddings are not needed: s(v, x) = w s(a, x) + (1 − w) s(b, x). If a method has a score of
    its own, that score is mixed. Virtual items are queries, positives and negatives like all
    others. M images of a class give M (M − 1) / 2 virtual items.

    Args:
        score: [..., B, B]. pairs: of the batch with itself.

    Returns:
        Scores and pairs of the images, followed by the virtual items.
    """
    first, second = (pairs.pos.triu(1) > 0).nonzero(as_tuple=True)
    draws = torch.rand(
        pairs.pos.shape, generator=generator, device=score.device, dtype=score.dtype
    )  # one for each pair of images, so that the generator's state does not depend on the labels
    share = draws[first, second]
    rows = share[:, None] * score[..., first, :] + (1 - share[:, None]) * score[..., second, :]
    score = torch.cat([score, rows], -2)
    columns = share * score[..., first] + (1 - share) * score[..., second]
    score = torch.cat([score, columns], -1)
    images, labels = len(pairs.labels), torch.cat([pairs.labels, pairs.labels[first]])
    itself = torch.arange(len(labels), device=labels.device)
    extended = make_pairs(labels, labels, self_index=itself)
    # a method may have excluded pairs of images
    extended.pos[:images, :images], extended.neg[:images, :images] = pairs.pos, pairs.neg
    return score, extended
