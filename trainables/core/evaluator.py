"""What a network is worth on a split: after an epoch, by what selects, and at the end.

At the end there is also what its method measures there (`Method.measure`): `<name>`, the mean over
a sample of the split, and `<name>_low`, `<name>_high`, the 95 % percentile bootstrap interval of
that mean over images; they stand beside the split's metrics.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from trainables import streams
from trainables.core.assembly import Parts
from trainables.data.splits import Splits, Subset
from trainables.evaluation.tasks import get_task
from trainables.machine.group import Group
from trainables.trial import TrialConfig

MOST = 1024  # images of a split that are measured
RESAMPLES = 1000
SUFFIXES = ("", "_low", "_high")

Scores = dict[str, dict[str, float]]  # metrics by split


def list_epoch_splits(config: TrialConfig, splits: Splits) -> tuple[str, ...]:
    """Return the splits that are read after an epoch, first the one that selects."""
    more = ("train",) if config.selection.train_curve else ()
    return (splits.selection, *more)


class Evaluator:
    """At one trial's network, as it stands; `group`: the processes that embed a split."""

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
        self.device, self.group, self.task = device, group, get_task(config)
        self.best = f"best/{splits.selection}/{config.selection.metric}"  # of an epoch's metrics

    def is_due(self, epoch: int) -> bool:
        """Return whether the network is looked at after an epoch, from 1."""
        return epoch % self.config.selection.every == 0 or epoch == self.config.training.epochs

    def evaluate_epoch(self) -> Scores:
        """Return the task's metrics of an epoch, by split; a TrialFailure if an answer is not
        finite."""
        splits = list_epoch_splits(self.config, self.splits)
        return {split: self.compute_metrics(split, self.task.per_epoch) for split in splits}

    def evaluate(self, split: str, metrics: tuple[str, ...]) -> dict[str, float]:
        """Return metrics of one split, and what the method measures there."""
        values = self.compute_metrics(split, metrics)
        return self.group.broadcast_object(lambda: values | self._measure(self.splits[split]))

    @torch.inference_mode()
    def compute_metrics(self, split: str, metrics: tuple[str, ...]) -> dict[str, float]:
        """Return metrics of one split alone."""
        self.network.eval()
        task, network, subset = self.task, self.network, self.splits[split]
        local_answers = [
            task.compute_answers(network, block)
            for block in self.inputs.iterate_blocks(subset, self.group)
        ]
        answers = self.group.gather(local_answers, self.device)
        options = {"metrics": metrics, "restarts": self.config.evaluation.restarts}
        return self.group.broadcast_object(lambda: task.read(network, answers, subset, **options))

    @torch.inference_mode()
    def _measure(self, subset: Subset) -> dict[str, float]:
        """Return what the method measures of a sample of a split: the same images and draws,
        whatever the trial and seed."""
        method = self.network.method
        if not method.MEASURES:
            return {}
        self.network.eval()
        order = torch.randperm(len(subset), generator=streams.create_generator(0, "measured"))[
            :MOST
        ]
        index, labels = subset.index[order], subset.labels[order]
        sample = replace(subset, index=index, labels=labels, queries=None)
        measured: dict[str, list[torch.Tensor]] = {}
        draws = None
        for block in self.inputs.iterate_blocks(sample):
            draws = draws or streams.create_generator(0, "measure", device=block.device)
            for name, values in method.measure(block, self.network.features, draws).items():
                measured.setdefault(name, []).append(values.double().cpu())
        means: dict[str, float] = {}
        for name, parts in measured.items():
            numbers = torch.cat(parts).numpy()
            three = (float(numbers.mean()), *bootstrap_interval(numbers))
            means |= {name + suffix: value for suffix, value in zip(SUFFIXES, three, strict=True)}
        return means


def bootstrap_interval(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean of values[N]; the same draws each time."""
    rng = np.random.default_rng(0)
    means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
