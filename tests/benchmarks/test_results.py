"""Every method has a loss on which its step is measured."""

from __future__ import annotations

from tests.benchmarks.bench_steps import loss_for
from trainables.methods.base import METHODS


def test_every_method_takes_a_loss() -> None:
    assert all(loss_for(method) for method in METHODS)
