"""The overhead benchmark finds every method of the registry a loss; a number without a bound."""

from __future__ import annotations

import pytest

from tests.benchmarks.bench_overhead import loss_for, trial
from tests.benchmarks.results import Result, table
from trainables.methods.base import METHODS


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_is_measured_on_a_loss_that_it_takes(method: str) -> None:
    assert trial(method, loss_for(method)).method.name == method  # type: ignore[attr-defined]


def test_a_number_without_a_bound_is_told_and_never_missed() -> None:
    told = Result("step", 3.0, "plain", 2.0, None, "ms")
    assert told.met
    assert table([told]).splitlines()[1].split() == ["step", "3", "ms", "plain", "2", "ms", "×1.50"]
    assert not Result("step", 3.0, "plain", 2.0, 2.5, "ms").met
