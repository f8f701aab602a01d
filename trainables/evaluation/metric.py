"""The registry of metrics.

    @metric("spread", reads="rows", direction="minimize", label="Spread")
    def spread(rows: Tensor, labels: Tensor) -> float: ...

Other packages add metrics by an entry point in `ablate.metrics`, which names a module with such
functions, a `Metric`, or a function (unit rows, labels) → float, which gets the entry's name.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, TypeVar

from trainables.words.errors import ConfigError
from trainables.words.metrics import find_metric
from trainables.words.registry import Registry

Reads = Literal["places", "clusters", "rows", "logits"]
Unit = Literal["%", ""]
Direction = Literal["maximize", "minimize"]
F = TypeVar("F", bound=Callable[..., Any])
NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(eq=False)
class Metric:
    """Define one number that is computed on a split.

    Attributes:
        name: name in specs, tables and the ledger, of lower-case letters, digits and _.
        function: computes the metric from the input that `reads` names.
        reads: input of the function; metrics of the same kind share its computation.
            rows: (unit rows [N, E], labels [N] of 0 … C − 1) → float.
            places: `function` is a `RankingMetric`.
            clusters: the `Contingency` of k-means' clusters and the classes → float.
            logits: (logits [N, C], labels [N]) → float.
        unit, direction, label: how it is shown (`MetricFacts`); None: what the table of metrics
            says, or "" , "maximize" and the name for a metric that it does not have.
    """

    name: str
    function: Callable[..., Any]
    reads: Reads = "rows"
    unit: Unit | None = None
    direction: Direction | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        facts = find_metric(self.name)
        self.unit = facts.unit if self.unit is None else self.unit
        self.direction = self.direction or facts.direction
        self.label = self.label or facts.label
        # the registry reads these attributes of a function or class
        self.__module__ = getattr(self.function, "__module__", "")
        self.__qualname__ = getattr(self.function, "__qualname__", self.name)

    @property
    def is_own(self) -> bool:
        """Return whether the metric comes with this package."""
        return self.__module__.partition(".")[0] == __name__.partition(".")[0]

    @property
    def digest(self) -> str:
        """Return eight hex digits of the SHA-256 of the source of the metric's module."""
        module = inspect.getmodule(self.function)
        source = inspect.getsource(module if module is not None else self.function)
        return sha256(source.encode("utf-8")).hexdigest()[:8]


def adapt_entry_point(name: str, entry: Any) -> Metric:
    """Return another package's entry point as a metric; it is a `Metric` or a function.

    Refuse a name that is invalid or used already, and an object without a function.
    """
    metric = entry if isinstance(entry, Metric) else Metric(name, entry)
    path = f"entry point {name} of ablate.metrics"
    if not NAME.fullmatch(name) or metric.name != name or name in METRIC_REGISTRY:
        raise ConfigError(
            path,
            f"{name!r} cannot be the metric's name",
            "Choose an unused name of lower-case letters, digits and _, which the Metric has too",
        )
    if not inspect.isfunction(metric.function):
        raise ConfigError(
            path,
            f"{entry!r} is no metric",
            "Give a Metric or a function (unit rows, labels) → float",
        )
    return metric


METRIC_REGISTRY: Registry[Metric] = Registry(
    "metrics",
    "trainables.evaluation.ranking_metrics",
    "trainables.evaluation.clustering",
    "trainables.evaluation.structure",
    adapt=adapt_entry_point,
)


def metric(
    name: str,
    *,
    reads: Reads = "rows",
    unit: Unit | None = None,
    direction: Direction | None = None,
    label: str | None = None,
) -> Callable[[F], F]:
    """Return a decorator that registers a function as a `Metric` with these fields."""

    def add(function: F) -> F:
        METRIC_REGISTRY.register(name)(Metric(name, function, reads, unit, direction, label))
        return function

    return add
