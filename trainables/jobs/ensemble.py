"""The networks of several folds as one: their embeddings side by side.

    z(x) = [z₁(x), …, z_k(x)]

where each part is of unit length if its network is compared by cosine. Cosines of such vectors
are means of the members' cosines, dot products and squared distances are sums of theirs. A method
with a score of its own keeps it: the ensemble's is the mean of the members' scores.

This is the "concatenated" result of Musgrave, Belongie and Lim, "A Metric Learning Reality Check"
(ECCV 2020); the mean of the members' own results is their "separated" one. A change to what an
ensemble is must raise `EVALUATOR`, as any change to an evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.core.assembly import assemble_parts
from trainables.core.export import read_weights
from trainables.core.runtime import Runtime
from trainables.data.splits import load_splits
from trainables.errors import TrialFailure
from trainables.evaluation.metrics import METRICS, evaluate_split
from trainables.evaluation.scores import PlainScore, Score
from trainables.machine.devices import resolve_device
from trainables.methods.base import Method, compare_embeddings
from trainables.trial import TrialConfig


@dataclass(frozen=True)
class Member:
    """One trained fold. export: the file of its weights."""

    config: TrialConfig
    seed: int
    export: Path


def evaluate_ensemble(
    members: Sequence[Member], runtime: Runtime, metrics: Sequence[str] = ()
) -> dict[str, float]:
    """Return metrics of the concatenated embeddings of the test images, which all folds share.

    One network at a time is in memory; of a method with its own score the head stays.

    Args:
        metrics: besides `METRICS`.

    Raises:
        TrialFailure: fewer than two members, an export that is gone, or members that differ in
            more than the fold that was held out.
    """
    if len(members) < 2:
        raise TrialFailure(f"ensemble: {len(members)} member(s), not the two it takes at least")
    for member in members:
        if _strip_fold(member.config) != _strip_fold(members[0].config):
            raise TrialFailure(
                f"ensemble: {member.export} is of another configuration than {members[0].export}; "
                "members differ in data.split.fold alone"
            )
        if not member.export.exists():
            raise TrialFailure(
                f"ensemble: {member.export} is gone; --force trains the study's folds again"
            )
    if runtime.threads is not None:
        torch.set_num_threads(runtime.threads)
    splits = load_splits(members[0].config.data, runtime.cache_dir)
    splits.require_splits(("test",))
    embedded = [_embed_test_images(member, runtime) for member in members]
    z = torch.cat([part for part, _ in embedded], dim=1)
    wanted = tuple(dict.fromkeys((*METRICS, *metrics)))
    restarts = members[0].config.evaluation.restarts
    return evaluate_split(
        z, splits.test, score=_evaluate_joint(embedded), metrics=wanted, restarts=restarts
    )


def _strip_fold(config: TrialConfig) -> TrialConfig:
    split = config.data.split.model_copy(update={"fold": None})
    return config.model_copy(update={"data": config.data.model_copy(update={"split": split})})


@torch.inference_mode()
def _embed_test_images(member: Member, runtime: Runtime) -> tuple[Tensor, PlainScore | Method]:
    """Return embeddings [N, E] of the test images, and how the member compares them."""
    device = resolve_device(runtime.device)
    splits = load_splits(member.config.data, runtime.cache_dir)
    parts = assemble_parts(member.config, member.seed, splits, runtime.cache_dir, device)
    network = parts.network
    network.load_state_dict(read_weights(member.export))
    network.eval()
    z = torch.cat([network.embed(block) for block in parts.inputs.iterate_blocks(splits.test)])
    score = network.retrieval_score()
    if not isinstance(score, PlainScore):
        return z, network.method
    return F.normalize(z, dim=1) if score.normalize else z, score


def _evaluate_joint(members: Sequence[tuple[Tensor, PlainScore | Method]]) -> Score:
    """Of the members' embeddings side by side."""
    first = members[0][1]
    if isinstance(first, PlainScore):
        return first  # of one configuration, so that all have the same
    widths = [part.shape[1] for part, _ in members]
    methods = [how for _, how in members if isinstance(how, Method)]

    def mean(query: Tensor, reference: Tensor) -> Tensor:
        queries, references = (torch.split(rows, widths, 1) for rows in (query, reference))
        scores = [
            compare_embeddings(how, q, r, how.loss.retrieval)
            for how, q, r in zip(methods, queries, references, strict=True)
        ]
        return torch.stack(scores).mean(0)

    return mean
