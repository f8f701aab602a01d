"""Evaluate the networks of several folds as one, by concatenating their embeddings.

    z(x) = [z₁(x), …, z_k(x)]

Each part has unit length if its network is compared by cosine. Cosines of such vectors are the
means of the members' cosines; dot products and squared distances are their sums. If a method has a
score of its own, the ensemble's score is the mean of the members' scores. Whoever changes this must
raise `EVALUATOR`, as for any change to an evaluation.

References:
    Musgrave, Belongie and Lim, "A Metric Learning Reality Check", ECCV 2020: the "concatenated"
    result; the mean of the members' own results is the "separated" one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.core.assembly import assemble_parts
from trainables.core.export import load_weights
from trainables.core.runtime import Runtime
from trainables.data.splits import load_splits
from trainables.evaluation.metrics import evaluate_split
from trainables.evaluation.scores import PlainScore, Score
from trainables.machine.devices import resolve_device
from trainables.methods.base import Method, compare_embeddings
from trainables.trial import TrialConfig
from trainables.words.errors import TrialFailure
from trainables.words.metrics import AT_END


@dataclass(frozen=True)
class Member:
    """A trained fold and the file of its weights."""

    config: TrialConfig
    seed: int
    export: Path


def evaluate_ensemble(
    members: Sequence[Member], runtime: Runtime, metrics: Sequence[str] = ()
) -> dict[str, float]:
    """Evaluate the concatenated test embeddings of all members; return the metrics by name.

    The members are networks that were trained on different folds of a study. `AT_END` are always
    computed. One network at a time is in memory; the heads of methods with own scores stay.
    """
    # check that the members are folds of one configuration
    if len(members) < 2:
        raise TrialFailure(f"An ensemble needs at least two members, not {len(members)}")
    first = members[0]
    for member in members:
        if _strip_fold(member.config) != _strip_fold(first.config):
            raise TrialFailure(
                f"The trials of {member.export} and {first.export} differ in more than "
                "data.split.fold, so they cannot form an ensemble"
            )
        if not member.export.exists():
            raise TrialFailure(
                f"{member.export} does not exist. Give --force to train the study's folds again"
            )

    # embed the test images by each member, and evaluate the joint embeddings
    if runtime.threads is not None:
        torch.set_num_threads(runtime.threads)
    splits = load_splits(first.config.data, runtime.cache_dir)
    splits.require_splits(("test",))
    embedded = [_embed_test_images(member, runtime) for member in members]
    z = torch.cat([part for part, _ in embedded], dim=1)
    score, names = _build_joint_score(embedded), tuple(dict.fromkeys((*AT_END, *metrics)))
    restarts = first.config.evaluation.restarts
    return evaluate_split(z, splits.test, score=score, metrics=names, restarts=restarts)


def _strip_fold(config: TrialConfig) -> TrialConfig:
    split = config.data.split.model_copy(update={"fold": None})
    return config.model_copy(update={"data": config.data.model_copy(update={"split": split})})


@torch.inference_mode()
def _embed_test_images(member: Member, runtime: Runtime) -> tuple[Tensor, PlainScore | Method]:
    """Return a member's test embeddings [N, E] and the plain score or method that compares them."""
    device = resolve_device(runtime.device)
    splits = load_splits(member.config.data, runtime.cache_dir)
    parts = assemble_parts(member.config, member.seed, splits, runtime.cache_dir, device)
    network = parts.network.eval()
    load_weights(network, member.export)
    z = torch.cat([network.embed(block) for block in parts.inputs.iterate_blocks(splits.test)])
    score = network.retrieval_score()
    if not isinstance(score, PlainScore):
        return z, network.method
    return F.normalize(z, dim=1) if score.normalize else z, score


def _build_joint_score(members: Sequence[tuple[Tensor, PlainScore | Method]]) -> Score:
    """Return the members' common plain score, or else the mean of their methods' scores."""
    _, score = members[0]
    if isinstance(score, PlainScore):
        return score
    widths = [part.shape[1] for part, _ in members]
    methods = [method for _, method in members if isinstance(method, Method)]

    def average_scores(query: Tensor, reference: Tensor) -> Tensor:
        """Return the mean score; each method compares the columns that its network computed."""
        queries, references = (torch.split(rows, widths, 1) for rows in (query, reference))
        scores = [
            compare_embeddings(method, q, r, method.loss.retrieval)
            for method, q, r in zip(methods, queries, references, strict=True)
        ]
        return torch.stack(scores).mean(0)

    return average_scores
