"""What a network is worth on a split: after an epoch, by what selects, and at the end."""

from __future__ import annotations

import torch

from trainables.core.assembly import Parts
from trainables.core.measures import measured
from trainables.data.splits import Splits
from trainables.evaluation.tasks import task_of
from trainables.machine.group import Group
from trainables.trial import TrialConfig

Scores = dict[str, dict[str, float]]  # metrics by split


def looked_at(config: TrialConfig, splits: Splits) -> tuple[str, ...]:
    """The splits that are read after an epoch, first the one that selects."""
    more = ("train",) if config.selection.train_curve else ()
    return (splits.selection, *more)


class Looks:
    """At one trial's network, as it stands.

    Args:
        group: the processes that embed a split.
    """

    def __init__(
        self,
        config: TrialConfig,
        splits: Splits,
        parts: Parts,
        device: torch.device,
        group: Group,
    ) -> None:
        self.config, self.splits = config, splits
        self.network, self.inputs = parts.network, parts.inputs
        self.device, self.group, self.task = device, group, task_of(config)
        self.of_epoch = looked_at(config, splits)
        self.best = f"best/{splits.selection}/{config.selection.metric}"  # of an epoch's metrics

    def due(self, epoch: int) -> bool:
        """Whether the network is looked at after an epoch, from 1."""
        return epoch % self.config.selection.every == 0 or epoch == self.config.training.epochs

    def after_epoch(self) -> Scores:
        """The task's metrics of an epoch, by split.

        Raises:
            TrialFailure: an answer is not finite.
        """
        return {split: self.metrics(split, self.task.per_epoch) for split in self.of_epoch}

    def evaluate(self, split: str, metrics: tuple[str, ...]) -> dict[str, float]:
        """Metrics of one split, and what the method measures there.

        Raises:
            TrialFailure: an embedding is not finite.
        """
        found, subset = self.metrics(split, metrics), self.splits[split]
        return self.group.broadcast_object(
            lambda: found | measured(self.network, self.inputs, subset)
        )

    @torch.inference_mode()
    def metrics(self, split: str, metrics: tuple[str, ...]) -> dict[str, float]:
        """Metrics of one split alone; errors as above."""
        self.network.eval()
        task, network, subset = self.task, self.network, self.splits[split]
        own = [task.answer(network, block) for block in self.inputs.blocks(subset, self.group)]
        answers = self.group.gather(own, self.device)
        restarts = self.config.evaluation.restarts
        return self.group.broadcast_object(
            lambda: task.read(network, answers, subset, metrics, restarts)
        )
