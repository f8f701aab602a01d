"""Estimate the memory and time of a trial from finished trials of the ledger, without running it.

Trials of one kind (data, network, loss, method) have a memory, and seconds per step, of the form
a + b × size with a, b ≥ 0; the size is the number of pixels in a batch. One known size gives the
least that another one can need, two sizes give a line. If trials of several devices are known, the
device that needs least counts, so that a proposal is refused only if it fits on none of them.
"""

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ablate.ledger import queries
from ablate.ledger.limits import read_needs
from ablate.ledger.records import Records

KIND = {  # fields that decide how long an epoch takes
    "data": ("name", "root", "image_size"),
    "backbone": ("name", "mode", "blocks"),
    "training": ("batch_size", "micro_batch", "checkpointing"),
    "embedding": ("dim",),
    "loss": ("name",),
}
SIZES = ("image_size", "batch_size", "micro_batch")  # those that are numbers, which costs grow with


def build_cost_key(config: Mapping[str, Any], *, sized: bool = True) -> str:
    """Return a text that is equal for configurations whose epochs take equally long.

    It names data set, network, batch and method, but no float options, which cost no time, and no
    options that are None, which earlier trials may lack.

    Args:
        sized: whether trials of different image and batch sizes have different keys.
    """

    def drop_floats(options: Any) -> Any:
        if not isinstance(options, Mapping):
            return options
        kept = {k: v for k, v in options.items() if v is not None and not isinstance(v, float)}
        return {k: drop_floats(v) for k, v in kept.items()}

    fields = [
        config.get(section, {}).get(name)
        for section, names in KIND.items()
        for name in names
        if sized or name not in SIZES
    ]
    return json.dumps([*fields, drop_floats(config["method"])], sort_keys=True)


@dataclass(frozen=True)
class TrialCost:
    """What a finished trial needed.

    Attributes:
        kind: its `build_cost_key` without sizes.
        sizes: pixels that are in memory at once, and pixels of a step.
        memory: bytes; None if unknown.
        step: seconds of a step.
        images: number of images of an epoch.
    """

    kind: str
    device: str
    sizes: tuple[int, int]
    memory: float | None
    step: float
    images: float


class TrialCosts:
    """Estimate what trials need from the finished trials of the ledger."""

    def __init__(self, records: Records) -> None:
        self._records, self._latest = records, 0.0  # end of the newest trial that was read
        self._measured: dict[str, TrialCost] = {}

    def estimate_needs(self, config: Mapping[str, Any]) -> dict[str, float]:
        """Return the "memory" and "seconds" of a configuration, as far as they are known."""
        # read the trials that have finished since the last call
        for row in queries.list_finished_trials(self._records, self._latest):
            self._latest, needs = max(self._latest, row["ended"]), read_needs(row)
            has_batches = "batch_size" in row["config"]["training"]  # not in every older ledger
            if "seconds" in needs and row["steps"] and row["epochs"] and has_batches:
                self._measured[row["trial_id"]] = TrialCost(
                    build_cost_key(row["config"], sized=False),
                    str((row["provenance"] or {}).get("device")),
                    _measure_sizes(row["config"]),
                    needs.get("memory"),
                    needs["seconds"] / row["steps"],
                    row["steps"] / row["epochs"] * row["config"]["training"]["batch_size"],
                )
        # estimate by the trials of each device
        key, (in_memory, in_step) = build_cost_key(config, sized=False), _measure_sizes(config)
        by_device: dict[str, list[TrialCost]] = {}
        for trial in self._measured.values():
            if trial.kind == key:
                by_device.setdefault(trial.device, []).append(trial)
        estimates: dict[str, list[float]] = {}
        for trials in by_device.values():
            training = config["training"]
            images = statistics.median(trial.images for trial in trials)
            n_steps = training["epochs"] * max(1.0, images / training["batch_size"])
            step = estimate_at([(trial.sizes[1], trial.step) for trial in trials], in_step)
            estimates.setdefault("seconds", []).append(n_steps * step)
            if memory := [(t.sizes[0], t.memory) for t in trials if t.memory is not None]:
                estimates.setdefault("memory", []).append(estimate_at(memory, in_memory))
        return {name: min(values) for name, values in estimates.items()}


def _measure_sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of pixels that are in memory at once, and that of a step."""
    training, pixels = config["training"], (config["data"].get("image_size") or 1) ** 2
    at_once = training.get("micro_batch") or training["batch_size"]
    return at_once * pixels, training["batch_size"] * pixels


def estimate_at(measured: Iterable[tuple[float, float]], size: float) -> float:
    """Return the cost at `size` of the line through the two nearest sizes of (size, cost) pairs.

    The line is kept within what a + b × size with a, b ≥ 0 allows from the nearest size. If all
    pairs have one size, this is the least cost that such a line can have.
    """
    by_size: dict[float, list[float]] = {}
    for measured_size, cost in measured:
        by_size.setdefault(measured_size, []).append(cost)
    costs = {key: statistics.median(values) for key, values in by_size.items()}
    nearest, *others = sorted(costs, key=lambda key: abs(key - size))
    cost = costs[nearest]
    lowest, highest = sorted((cost, cost * size / nearest))
    if not others:
        return lowest
    slope = (costs[others[0]] - cost) / (others[0] - nearest)
    return min(max(cost + slope * (size - nearest), lowest), highest)
