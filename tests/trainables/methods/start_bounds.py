"""Between which bounds the terms of a method lie at its start, and which options break them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.trainables.methods.starts import PLAIN, Place, Ratio, first_step, ratio

Span = tuple[float, float]
NO: Span = (0.0, 0.0)  # no gradient reaches it
ROUNDING = 1e-6


@dataclass(frozen=True)
class Bounds:
    """Least and most of each of `starts.Ratio`; cosine: None, where any will do."""

    value: Span
    embedding: Span
    features: Span
    cosine: Span | None = None


def exactly(weight: float) -> Bounds:
    """The other term times `weight`, and pulling the same way."""
    near = (weight * (1 - 1e-5), weight * (1 + 1e-5))
    return Bounds(near, near, near, (1 - 1e-5, 1.0))


@dataclass(frozen=True)
class Start:
    """metric: bounds of the method's metric term over that of the plain method, from the same head
        and proxies; cosine: whether both pull the images the same way.
    terms: of each other term by name, all of them, weighted as in training, over the metric term.
    training: what `method` has otherwise where the backbone trains.
    drowned: changes of `method` that break a bound, in both places; by name.
    """

    name: str
    method: dict[str, Any]
    metric: Bounds
    terms: dict[str, Bounds] = field(default_factory=dict)
    loss: dict[str, Any] = field(default_factory=lambda: {"name": "proxy_anchor"})
    training: dict[str, Any] = field(default_factory=dict)
    drowned: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def bounds(self) -> dict[str, Bounds]:
        """Of all terms."""
        return {"metric": self.metric, **self.terms}


def ratios(start: Start, place: Place, cache: Path, **changes: Any) -> dict[str, Ratio]:
    """The metric term over the plain method's, all others over the metric term."""
    given = start.method | (start.training if place == "training" else {}) | changes
    plain = first_step(place, PLAIN, start.loss, cache)["metric"]
    found = first_step(place, given, start.loss, cache)
    metric = found.pop("metric")
    others = {name: ratio(size, metric) for name, size in found.items()}
    return {"metric": ratio(metric, plain), **others}


def broken(bounds: Mapping[str, Bounds], found: Mapping[str, Ratio]) -> Iterator[str]:
    """The bounds that do not hold, in words."""
    for name, each in bounds.items():
        for what in ("value", "embedding", "features", "cosine"):
            span, value = getattr(each, what), getattr(found[name], what)
            if span is not None and not span[0] <= value <= span[1] + ROUNDING:
                yield f"{name}: {what} {value:.4g}, not {span[0]:g} to {span[1]:g}"
