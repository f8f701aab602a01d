"""No term drowns the metric at the start, on frozen features and on a backbone that trains.

A method joins by one entry of `STARTS`: its options as a recipe has them, and between which bounds
its terms lie. What to write there: `python -m tests.trainables.methods.test_starts NAME` prints the
ratios of the entry of that name, in both places. A scale that is wrong by much is seen here before
a search is spent on it: `drowned` lists options that were, or would be, and that break a bound.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.methods.starts import PLACES, PLAIN, Place, Ratio, first_step, ratio

Span = tuple[float, float]


@dataclass(frozen=True)
class Bounds:
    """Least and most of each of `starts.Ratio`."""

    value: Span
    embedding: Span
    features: Span
    cosine: Span = (-1.0, 1.0)


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


STARTS = [
    Start(
        # The originals keep the pull of the plain loss, less what the uncertainty takes off; the
        # mixtures' loss comes on top, about as large.
        name="idml",
        method={"name": "idml", "mixing": "feature_mixup", "uncertainty_dim": 128},
        training={"mixing": "mixup"},
        metric=Bounds((1.8, 2.4), (0.6, 1.0), (0.6, 1.0), (0.7, 1.0)),
        drowned={
            "originals and mixtures in one loss": {"objective": "joint"},
            "weighted labels in one loss": {"objective": "joint", "mixed_labels": "weighted"},
            "u as long as the features make it": {"uncertainty_gain": 1.0},
        },
    ),
    Start(
        name="pel",
        method={"name": "pel"},
        metric=Bounds((0.8, 1.1), (0.6, 1.0), (0.8, 1.1), (0.8, 1.0)),
        terms={"kl": Bounds((0.01, 0.06), (0.003, 0.02), (0.01, 0.08))},
        drowned={"KL of weight 0.1": {"kl": 0.1}},
    ),
    Start(
        # R is a small, near constant term here, and hardly pulls at the embedding: what it changes
        # is in the flows.
        name="detreg",
        method={"name": "detreg", "activation": "none", "flow": {"width": 128}},
        metric=Bounds((0.95, 1.05), (0.9, 1.1), (0.9, 1.1), (0.98, 1.0)),
        terms={
            "metric2": Bounds((0.9, 1.1), (0.9, 1.1), (0.9, 1.1), (0.95, 1.0)),
            "r1": Bounds((0.01, 0.05), (1e-7, 1e-4), (1e-7, 1e-4)),
            "r2": Bounds((0.01, 0.05), (1e-7, 1e-4), (1e-7, 1e-4)),
        },
        drowned={
            "z as long as the head makes it": {"input": "raw"},
            "ReLU": {"activation": "relu"},
        },
    ),
]  # fmt: skip


def ratios(start: Start, place: Place, cache: Path, **changes: Any) -> dict[str, Ratio]:
    """The metric term over the plain method's, all others over the metric term."""
    given = start.method | (start.training if place == "training" else {}) | changes
    plain = first_step(place, PLAIN, start.loss, cache)["metric"]
    found = first_step(place, given, start.loss, cache)
    metric = found.pop("metric")
    others = {name: ratio(size, metric) for name, size in found.items()}
    return {"metric": ratio(metric, plain), **others}


def broken(start: Start, found: dict[str, Ratio]) -> Iterator[str]:
    for name, each in found.items():
        bounds = start.metric if name == "metric" else start.terms[name]
        for what in ("value", "embedding", "features", "cosine"):
            (low, high), value = getattr(bounds, what), getattr(each, what)
            if not low <= value <= high + 1e-6:
                yield f"{name}: {what} {value:.4g}, not {low:g} to {high:g}"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.name)
def test_every_term_is_within_its_bounds(start: Start, place: Place, shared_cache: Path) -> None:
    found = ratios(start, place, shared_cache)
    assert found.keys() == {"metric", *start.terms}
    assert not list(broken(start, found))


DROWNED = [(start, name) for start in STARTS for name in start.drowned]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("start", "name"), DROWNED, ids=[f"{start.name}: {name}" for start, name in DROWNED]
)
def test_a_drowned_start_is_seen(start: Start, name: str, place: Place, shared_cache: Path) -> None:
    assert list(broken(start, ratios(start, place, shared_cache, **start.drowned[name])))


if __name__ == "__main__":
    for start in STARTS:
        if start.name in sys.argv[1:]:
            with tempfile.TemporaryDirectory() as folder:
                for where in PLACES:
                    print(start.name, where)
                    for term, each in ratios(start, where, Path(folder)).items():
                        print(f"  {term}: {each}")
