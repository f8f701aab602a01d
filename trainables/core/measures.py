"""What a method measures of a split beside the embedding, as means with intervals.

`Method.measure` gives a value per image. Here they become `<name>`, the mean over a sample of the
split, and `<name>_low`, `<name>_high`, the 95 % percentile bootstrap interval of that mean over
images; they stand beside the split's metrics.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from trainables import streams
from trainables.core.inputs import Inputs
from trainables.core.network import Network
from trainables.data.splits import Subset

MOST = 1024  # images of a split that are measured
RESAMPLES = 1000
SUFFIXES = ("", "_low", "_high")


@torch.inference_mode()
def measured(network: Network, inputs: Inputs, subset: Subset) -> dict[str, float]:
    """The same sample of a split, and the same draws, whatever the trial and seed."""
    if not network.method.MEASURES:
        return {}
    network.eval()
    order = torch.randperm(len(subset), generator=streams.generator(0, "measured"))[:MOST]
    sample = replace(subset, index=subset.index[order], labels=subset.labels[order], queries=None)
    observed: dict[str, list[torch.Tensor]] = {}
    draws = None
    for block in inputs.blocks(sample):
        draws = draws or streams.generator(0, "measure", device=block.device)
        for name, values in network.method.measure(block, network.features, draws).items():
            observed.setdefault(name, []).append(values.double().cpu())
    means: dict[str, float] = {}
    for name, parts in observed.items():
        all_values = torch.cat(parts).numpy()
        three = (float(all_values.mean()), *bootstrap(all_values))
        means |= {name + suffix: value for suffix, value in zip(SUFFIXES, three, strict=True)}
    return means


def bootstrap(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """95 % percentile interval of the mean of values[N]; the same draws each time."""
    rng = np.random.default_rng(0)
    means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
