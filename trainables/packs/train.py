"""A trial from its configuration to its final report, in one call, packed or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainables.core.runtime import EpochReport, FinalReport, Runtime
from trainables.core.trainer import Trainer
from trainables.packs.pack import Pack
from trainables.trial import TrialConfig


def reports(trainer: Trainer) -> Iterator[EpochReport]:
    """The epochs that are left of a trial; a packed one trains in a pack of its own."""
    if trainer.config.training.packed is None:
        yield from trainer.epochs()
        return
    for _, found in Pack([trainer]).reports():
        if not isinstance(found, EpochReport):
            raise found
        yield found


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
    for epoch in reports(trainer):
        if report is not None:
            report(epoch)
    return trainer.finish(evaluate)
