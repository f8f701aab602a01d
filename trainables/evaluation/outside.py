"""Metrics of other packages: entry points of the group `ablate.metrics`.

The entry's name is the metric's; the entry is a function (unit rows [N, E], labels [N] of
0 … C − 1) → float. What such a function returns is no part of this package's EVALUATOR, so each
stands in it with a hash of its module's text: evaluations of before it came, or of another text,
are read anew.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256

from torch import Tensor

from trainables.config.registry import installed
from trainables.errors import ConfigError

GROUP = "ablate.metrics"
NAME = re.compile(r"[a-z][a-z0-9_]*")

RowMetric = Callable[[Tensor, Tensor], float]


def metrics_of_others(own: Collection[str]) -> dict[str, RowMetric]:
    """Name → function, by name.

    own: names that are taken.

    Raises:
        ConfigError: a name that is taken, or is none for a metric; an entry that is no function.
    """
    metrics: dict[str, RowMetric] = {}
    for entry in sorted(installed().select(group=GROUP), key=lambda each: str(each.name)):
        place = f"entry point {entry.value} of {GROUP}"
        if not NAME.fullmatch(entry.name) or entry.name in own or entry.name in metrics:
            raise ConfigError(
                place,
                f"the name {entry.name!r}",
                "a name of lower-case letters, digits and _ that no other metric has",
                "Rename the metric in its package",
            )
        metric = entry.load()
        if not inspect.isfunction(metric):
            raise ConfigError(
                place, repr(metric), "a function (unit rows, labels) → float", "Name a function"
            )
        metrics[entry.name] = metric
    return metrics


def names_with_text(metrics: Mapping[str, RowMetric]) -> str:
    """`+mine.1f2e3d4c` for each; empty without any."""
    return "".join(f"+{name}.{_text(metric)}" for name, metric in metrics.items())


def _text(metric: RowMetric) -> str:
    module = inspect.getmodule(metric)
    source = inspect.getsource(module if module is not None else metric)
    return sha256(source.encode("utf-8")).hexdigest()[:8]
