"""A trial from its configuration to its final report, in one call."""

from __future__ import annotations

from collections.abc import Callable

from trainables.core.runtime import EpochReport, FinalReport, Runtime
from trainables.core.trainer import Trainer
from trainables.trial import TrialConfig


def train(
    config: TrialConfig,
    seed: int,
    runtime: Runtime,
    report: Callable[[EpochReport], None] | None = None,
    evaluate: tuple[str, ...] = ("val",),
) -> FinalReport:
    """Run a trial to its end; `report` is called after each epoch."""
    trainer = Trainer(config, seed, runtime)
    trainer.splits.require(evaluate)
    for epoch in trainer.epochs():
        if report is not None:
            report(epoch)
    return trainer.finish(evaluate)
