"""What is minimised of originals and mixtures: the authors' three losses, or the paper's one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.oracles import idml as oracle
from tests.trainables.components import loss_options
from tests.trainables.methods.cases import (
    GAMMA,
    TAU,
    B,
    C,
    U,
    base,
    build_on,
    compare_all,
    x,
)
from trainables import streams
from trainables.methods.base import Batch, Progress
from trainables.methods.mixing import UNUSED, draw_beta_share
from trainables.trial import TrialConfig

LABELS = [0, 0, 1, 1, 3, 3]
LOSSES_BY_LOOPS: dict[str, dict[str, Any]] = {
    "proxy_anchor": {"alpha": 9.0, "margin": 0.2},
    "multi_similarity": {
        "alpha": 2.0,
        "beta": 10.0,
        "threshold": 0.6,
        "epsilon": 0.05,
        "mining": "max_plus_epsilon",
    },
}
OBJECTIVES: dict[str, tuple[dict[str, Any], Callable[..., Tensor]]] = {
    "separate": ({"objective": "separate"}, oracle.separate),
    "default": ({}, oracle.separate),
    "joint": ({"objective": "joint"}, oracle.joint),
    "joint weighted": ({"objective": "joint", "mixed_labels": "weighted"}, oracle.joint_weighted),
}


def by_loops(method: Any, name: str) -> oracle.OfSets:
    """The loss of features and label sets, on the introspective score, from the heads' weights."""
    options = LOSSES_BY_LOOPS[name]

    def loss(features: Tensor, sets: list[set[int]]) -> Tensor:
        s = features @ method.head.weight.T + method.head.bias
        u = features @ method.uncertainty.weight.T + method.uncertainty.bias
        if name == "proxy_anchor":
            p, nothing = method.loss.proxies, torch.zeros(U, dtype=torch.float64)
            return oracle.proxy_anchor(
                lambda i, j: oracle.similarity(s[i], p[j], u[i], nothing, TAU, GAMMA),
                sets,
                C,
                options["alpha"],
                options["margin"],
            )
        return oracle.multi_similarity(
            lambda i, j: oracle.similarity(s[i], s[j], u[i], u[j], TAU, GAMMA),
            sets,
            options["alpha"],
            options["beta"],
            options["threshold"],
            options["epsilon"],
            printed=False,
        )

    return loss


def drawn() -> tuple[Tensor, list[int]]:
    """λ and the partners that `prepare` draws."""
    draws = streams.create_generator(0, "prepare")
    share = draw_beta_share(1.0, x(), draws)
    return share, torch.randperm(B, generator=draws).tolist()


def prepared(method: Any) -> Batch:
    batch = Batch(x(), torch.tensor(LABELS)[:, None])
    found: Batch = method.prepare(batch, streams.create_generator(0, "prepare"))
    return found


def step(method: Any) -> Tensor:
    batch = prepared(method)
    state = method(batch.inputs, batch.labels, Progress(), streams.create_generator(0, "method"))
    terms = method.terms(state, batch.labels, Progress(), streams.create_generator(0, "loss"))
    found: Tensor = terms["metric"].value
    return found


@pytest.mark.parametrize("loss", list(LOSSES_BY_LOOPS))
@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_each_objective_by_loops(loss: str, objective: str) -> None:
    options, loops = OBJECTIVES[objective]
    method = build_on(
        "idml", base(loss, **LOSSES_BY_LOOPS[loss]), mixing="feature_mixup", **options
    )
    share, partner = drawn()
    expected = loops(by_loops(method, loss), x(), LABELS, partner, share)
    compare_all(method, step(method), expected)


@pytest.mark.parametrize("loss", list(LOSSES_BY_LOOPS))
def test_without_originals_the_mixtures_alone_are_weighed(loss: str) -> None:
    method = build_on(
        "idml",
        base(loss, **LOSSES_BY_LOOPS[loss]),
        mixing="feature_mixup",
        originals="replaced",
    )
    share, partner = drawn()
    of_sets = by_loops(method, loss)
    mixed = oracle.mixtures(x(), partner, share)
    expected = share * of_sets(mixed, [{y} for y in LABELS])
    expected = expected + (1 - share) * of_sets(mixed, [{LABELS[j]} for j in partner])
    compare_all(method, step(method), expected)


def test_a_step_that_does_not_mix_is_the_plain_one() -> None:
    """λ = 1 and no second class, with a share of steps mixed."""
    options = {"mixing": "feature_mixup", "originals": "replaced", "mixing_probability": 1e-9}
    method = build_on("idml", base("proxy_anchor"), **options)
    batch = prepared(method)
    assert (batch.labels[:, 1] == UNUSED).all()
    torch.testing.assert_close(
        step(method), step(build_on("idml", base("proxy_anchor"), mixing="none"))
    )


@pytest.mark.parametrize("monte_carlo", ["scores", "losses"])
@pytest.mark.parametrize("loss", ["proxy_anchor", "multi_similarity"])
def test_pel_mixes_alike(loss: str, monte_carlo: str) -> None:
    """Samples [K, 2B, D]: each third of the objective has its own rows and labels."""
    options = {"mixing": "feature_mixup", "samples": 3, "monte_carlo": monte_carlo}
    method = build_on("pel", base(loss), **options)
    batch = prepared(method)
    share, partner = drawn()
    state = method(batch.inputs, batch.labels, Progress(), streams.create_generator(0, "method"))
    assert state.query.shape[:2] == (3, 2 * B)
    draws = streams.create_generator(0, "loss")
    found = method.metric(state.query, batch.labels, draws)
    alone = build_on("pel", base(loss), **options | {"mixing": "none"})
    one, other = torch.tensor(LABELS)[:, None], torch.tensor([LABELS[j] for j in partner])[:, None]
    originals, mixed = state.query[:, :B], state.query[:, B:]
    expected = alone.metric(originals, one, draws) + share * alone.metric(mixed, one, draws)
    expected = expected + (1 - share) * alone.metric(mixed, other, draws)
    torch.testing.assert_close(found, expected)


def test_losses_of_one_label_take_the_separate_objective() -> None:
    """And refuse the sets of the joint one."""
    trial = {"loss": loss_options("pml"), "method": {"name": "idml", "metric": "plain"}}
    TrialConfig.model_validate(trial)
    trial["method"] |= {"objective": "joint"}
    with pytest.raises(ValidationError, match="method idml gives an image several labels"):
        TrialConfig.model_validate(trial)
    trial["method"] |= {"mixed_labels": "weighted"}
    TrialConfig.model_validate(trial)
