"""The record of an epoch's terms."""

from __future__ import annotations

import math

import pytest
import torch

from trainables.core.loss_terms import EpochMetrics, warn_of_term_scales
from trainables.methods.base import Term
from trainables.words.errors import ConfigError, TrialFailure


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, requires_grad=True)


def test_sum_and_means() -> None:
    trace = EpochMetrics(1, 0)
    a, b = number(3.0), number(5.0)
    total = trace.add({"a": Term(a), "b": Term(b, 0.5)})
    total.backward()
    assert (total.item(), a.grad, b.grad) == (5.5, torch.tensor(1.0), torch.tensor(0.5))
    trace.add({"a": Term(number(1.0)), "b": Term(number(1.0), torch.tensor(2.0))})
    trace.check()
    assert trace.compute_means() == {
        "term/a/value": 2.0,
        "term/a/weight": 1.0,
        "term/b/value": 3.0,
        "term/b/weight": 1.25,
        "train/loss": (5.5 + 3.0) / 2,
    }


def test_weight_zero_is_seen_and_has_no_gradient() -> None:
    trace = EpochMetrics(1, 0)
    a, b = number(3.0), number(5.0)
    trace.add({"a": Term(a), "b": Term(b, 0.0)}).backward()
    assert b.grad is None
    assert trace.compute_means()["term/b/value"] == 5.0
    assert trace.compute_means()["train/loss"] == 3.0
    with pytest.raises(ConfigError, match="All terms of the loss have the weight 0"):
        EpochMetrics(1, 0).add({"b": Term(b, 0.0)})


def test_the_first_bad_step_is_named_over_saves_and_checks() -> None:
    trace = EpochMetrics(3, 100)
    for step in range(4):
        trace.add({"a": Term(number(1.0)), "b": Term(number(2.0))})
        trace.check()
        trace = EpochMetrics.from_state(trace.get_state(), torch.device("cpu"))
        assert trace.length == step + 1
    trace.add({"a": Term(number(1.0)), "b": Term(number(float("inf")))})
    trace.add({"a": Term(number(float("nan"))), "b": Term(number(float("nan")))})
    with pytest.raises(TrialFailure, match=r"term 'b' is inf at step 104 \(step 4 of epoch 3\)"):
        trace.check()


def test_observed_scalars_are_meaned_and_survive_a_checkpoint() -> None:
    trace = EpochMetrics(1, 0)
    for value in (1.0, 3.0, math.inf):
        trace.add({"metric": Term(torch.tensor(1.0))})
        trace.add_observed({"norm": torch.tensor(value)})
    again = EpochMetrics.from_state(trace.get_state(), torch.device("cpu"))
    for actual in (trace.compute_means(), again.compute_means()):
        assert actual["observed/norm"] == 2
        assert actual["observed/norm/nonfinite"] == pytest.approx(1 / 3)


def test_the_largest_ratio_of_an_epoch_is_kept_and_overwhelming_ones_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trace = EpochMetrics(1, 0)
    for ratio in (0.2, 5e3, math.nan):
        trace.add({"metric": Term(torch.tensor(1.0))})
        trace.add_observed(
            {"nir_to_metric": torch.tensor(ratio), "other_to_metric": torch.tensor(0.1)}
        )
    actual = trace.compute_means()
    assert actual["observed/nir_to_metric/max"] == 5e3
    assert actual["observed/nir_to_metric"] == pytest.approx(2500.1)
    assert actual["observed/nir_to_metric/first"] == pytest.approx(0.2)
    assert (
        "observed/nir_to_metric/first"
        not in EpochMetrics.from_state(
            {**trace.get_state(), "first_step": 3}, torch.device("cpu")
        ).compute_means()
    ), "only the first epoch has the trial's first step"
    warn_of_term_scales(actual, {}, 3)
    assert "In epoch 3 the gradient of the term 'nir' was up to 5.0e+03 times" in caplog.text
    assert len(caplog.records) == 1
    warn_of_term_scales(actual, actual, 4)
    assert len(caplog.records) == 1, "the epoch before did the same"


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (9.9, ""),
        (11.0, "drowns the metric: its gradient is 11 times"),
        (1.1e-4, ""),
        (2e-6, "does nothing: its gradient is 2.0e-06 times"),
        (0.0, "does nothing"),
    ],
)
def test_terms_that_drown_the_metric_or_do_nothing_are_named(
    ratio: float, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    trace = EpochMetrics(1, 0)
    trace.add({"metric": Term(torch.tensor(1.0))})
    trace.add_observed({"kl_to_metric": torch.tensor(ratio, dtype=torch.float64)})
    warn_of_term_scales(trace.compute_means(), {}, 1)
    assert len(caplog.records) == bool(words)
    assert words in caplog.text and ("term 'kl'" in caplog.text) == bool(words)
