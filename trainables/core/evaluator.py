"""Evaluate a trial's network on its splits, after an epoch and at the end of the training."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.core.assembly import Inputs, Network
from trainables.data.splits import Splits, Subset
from trainables.evaluation.metrics import ClassMeans
from trainables.evaluation.tasks import get_task
from trainables.machine.group import Group
from trainables.streams import create_generator
from trainables.trial import TrialConfig

SAMPLE_SIZE = 1024  # images of a split that the method measures
RESAMPLES = 1000
SUFFIXES = ("", "_low", "_high")

Scores = dict[str, dict[str, float]]  # metrics by split


def list_epoch_splits(config: TrialConfig, splits: Splits) -> tuple[str, ...]:
    """Return the splits to evaluate after an epoch; the first one selects the best epoch."""
    return (splits.selection, "train") if config.selection.train_curve else (splits.selection,)


class Evaluator:
    """Evaluate a trial's network with its current weights; `group` shares the embedding.

    Attributes:
        classes: split → a digest of its classes' names, in order, and `ClassMeans` of each split
            that `evaluate` has ranked; on the main process alone.
    """

    def __init__(
        self,
        config: TrialConfig,
        splits: Splits,
        network: Network,
        inputs: Inputs,
        *,
        device: torch.device,
        group: Group,
    ) -> None:
        self.config, self.splits = config, splits
        self.network, self.inputs = network, inputs
        self.device, self.group, self.task = device, group, get_task(config)
        self.classes: dict[str, dict[str, Any]] = {}
        self.best_metric_name = f"best/{splits.selection}/{config.selection.metric}"

    def is_due(self, epoch: int) -> bool:
        """Return whether the network is evaluated after an epoch, counted from 1."""
        return epoch % self.config.selection.every == 0 or epoch == self.config.training.epochs

    def evaluate_epoch(self) -> Scores:
        """Return the task's metrics after an epoch, by split."""
        splits = list_epoch_splits(self.config, self.splits)
        return {split: self.compute_metrics(split, self.task.per_epoch) for split in splits}

    def evaluate(self, split: str, metrics: tuple[str, ...]) -> dict[str, float]:
        """Return metrics of one split and the method's own measurements there."""
        class_means: ClassMeans = {}
        values = self.compute_metrics(split, metrics, class_means)
        if class_means:
            names = "\n".join(self.splits[split].classes).encode()
            digest = hashlib.sha256(names).hexdigest()[:16]
            self.classes[split] = {"digest": digest, "metrics": class_means}
        return self.group.broadcast_object(lambda: values | self._measure(self.splits[split]))

    @torch.inference_mode()
    def compute_metrics(
        self, split: str, metrics: tuple[str, ...], class_means: ClassMeans | None = None
    ) -> dict[str, float]:
        """Return a split's metrics, equal on all processes, without the method's measurements.

        `class_means` is filled on the main process.
        """
        task, network, subset = self.task, self.network.eval(), self.splits[split]
        blocks = self.inputs.iterate_blocks(subset, self.group)
        # each process embeds its share of the images, or computes logits for classification
        own_answers = [task.compute_answers(network, block) for block in blocks]
        answers = self.group.gather(own_answers, self.device)
        options: dict[str, Any] = {"metrics": metrics, "class_means": class_means}
        options["restarts"] = self.config.evaluation.restarts
        return self.group.broadcast_object(lambda: task.read(network, answers, subset, **options))

    @torch.inference_mode()
    def _measure(self, subset: Subset) -> dict[str, float]:
        """Return the means of the method's measurements on a sample of a split, with intervals.

        A measurement (`Method.measure`) is, for example, an image's uncertainty. `<name>_low` and
        `<name>_high` are the 95 % bootstrap interval of the mean `<name>`. The sample and random
        draws are the same for all trials and seeds.
        """
        if not self.network.method.MEASURES:
            return {}
        generator = create_generator(0, "measured")
        positions = torch.randperm(len(subset), generator=generator)[:SAMPLE_SIZE]
        measured = measure_images(self.network.eval(), self.inputs, subset, positions, self.device)
        means: dict[str, float] = {}
        for name, tensor in measured.items():
            values = tensor.numpy()
            estimates = (float(values.mean()), *bootstrap_interval(values))
            means |= {name + suffix: x for suffix, x in zip(SUFFIXES, estimates, strict=True)}
        return means


def measure_images(
    network: Network, inputs: Inputs, subset: Subset, positions: Tensor, device: torch.device
) -> dict[str, Tensor]:
    """Return the method's measurements (name → [B] float64 on the CPU) of B images of a split.

    `positions` [B] are their rows in the split. Random draws are the same for all trials and seeds.
    """
    index, labels = subset.index[positions], subset.labels[positions]
    sample = replace(subset, index=index, labels=labels, queries=None)
    draws = create_generator(0, "measure", device=device)
    blocks = inputs.iterate_blocks(sample)
    by_block = [network.method.measure(block, network.features, draws) for block in blocks]
    names = by_block[0].keys()
    return {name: torch.cat([values[name].double().cpu() for values in by_block]) for name in names}


def bootstrap_interval(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean of `values`, with fixed draws."""
    rng = np.random.default_rng(0)
    means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
