"""No term of DDML or DVML drowns the metric at the start, on frozen features and on a backbone that
trains; and options that do drown it are seen to.

`python -m tests.trainables.methods.test_starts_ddml_dvml` prints the ratios of all entries.
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
NO: Span = (0.0, 0.0)  # no gradient reaches it


@dataclass(frozen=True)
class Bounds:
    """Least and most of a term, weighted as in training, over the metric term: of magnitudes, and
    of the norms of gradients on the embedding and on the pooled features."""

    value: Span
    embedding: Span
    features: Span


@dataclass(frozen=True)
class Start:
    """metric: weight of the metric term, which is else the plain method's.
    terms: bounds of all others. drowned: changes of `method` that break one, in both places.
    """

    name: str
    loss: dict[str, Any]
    method: dict[str, Any]
    terms: dict[str, Bounds]
    metric: float = 1.0
    drowned: dict[str, dict[str, Any]] = field(default_factory=dict)


STARTS = [
    Start(
        # Table 4's weights. Two terms are as large as the metric's, and pull as much; the split
        # term, in the thousands, is next to nothing at 1e-7. Through σ, which the features make
        # large, the first two reach them about twice as strongly as through the mean.
        name="ddml, Table 4",
        loss={"name": "normsoftmax"},
        method={"name": "ddml", "alpha": 1, "beta": 1, "gamma": 1e-7},
        terms={
            "agnostic": Bounds((1.0, 1.2), (0.2, 0.4), (0.5, 0.9)),
            "specific": Bounds((1.0, 1.2), (0.8, 1.1), (1.8, 2.6)),
            "split": Bounds((3e-5, 3e-4), (1e-5, 1e-4), (5e-5, 5e-4)),
        },
        drowned={"gamma at the end of its range": {"gamma": 0.1}},
    ),
    Start(
        # No σ to speak of: both terms act on the mean alone.
        name="ddml, Table 4, exact start",
        loss={"name": "normsoftmax"},
        method={"name": "ddml", "alpha": 1, "beta": 1, "gamma": 1e-7, "std_start": "exact"},
        terms={
            "agnostic": Bounds((1.0, 1.2), (0.3, 0.5), (0.3, 0.5)),
            "specific": Bounds((1.0, 1.2), (1.0, 1.4), (1.0, 1.4)),
            "split": Bounds((1e-5, 1e-4), (1e-5, 1e-4), (1e-5, 1e-4)),
        },
        drowned={
            "gamma at the end of its range": {"gamma": 0.1},
            "sigma as large as the features make it": {"std_start": "kaiming"},
        },
    ),
    Start(
        name="ddml, the public recipe",
        loss={"name": "proxy_anchor"},
        method={"name": "ddml", "alpha": 1, "beta": 0.1, "gamma": 1e-5},
        terms={
            "agnostic": Bounds((0.3, 0.45), (0.1, 0.25), (0.2, 0.4)),
            "specific": Bounds((0.03, 0.05), (0.03, 0.07), (0.06, 0.12)),
            "split": Bounds((5e-4, 5e-3), (3e-4, 3e-3), (2e-3, 2e-2)),
        },
        drowned={"gamma at the end of its range": {"gamma": 0.1}},
    ),
    Start(
        # L1 and L2, sums in the thousands at weight 1, end at layers that nothing else trains: the
        # size alone drowns nothing.
        name="dvml, the paper's weights, first phase, spread detached",
        loss={"name": "triplet_l2"},
        method={"name": "dvml", "samples": 2, "phase1": 1, "spread": "detached"},
        terms={
            "kl": Bounds((1e3, 3e4), NO, NO),
            "reconstruction": Bounds((5e3, 4e4), NO, NO),
            "generated": Bounds((0.05, 0.15), (0.03, 0.1), (0.03, 0.1)),
        },
        drowned={
            "spread attached": {"spread": "attached"},
            "the paper's second phase": {"phase1": 0},
        },
    ),
    Start(
        # With all of it attached: KL by dimension at 1e-3, L2 at the middle of its range.
        name="dvml, small weights, second phase, spread attached",
        loss={"name": "triplet_l2"},
        method={
            "name": "dvml", "samples": 2, "phase1": 0, "kl_over": "mean",
            "lambda1_phase2": 1e-3, "lambda2_phase2": 1e-4,
        },
        metric=0.8,
        terms={
            "kl": Bounds((0.01, 0.3), NO, (0.1, 3.0)),
            "reconstruction": Bounds((1.0, 5.0), (0.05, 0.3), (0.1, 1.0)),
            "generated": Bounds((0.15, 0.3), (0.1, 0.2), (0.3, 1.2)),
        },
        drowned={
            "KL summed, at the paper's weight": {"kl_over": "sum", "lambda1_phase2": 0.8},
            "KL by dimension, at the paper's weight": {"lambda1_phase2": 0.8},
            "reconstruction at the paper's weight": {"lambda2_phase2": 1.0},
        },
    ),
]  # fmt: skip


def ratios(start: Start, place: Place, cache: Path, **changes: Any) -> dict[str, Ratio]:
    """The metric term over the plain method's, all others over the metric term."""
    plain = first_step(place, PLAIN, start.loss, cache)["metric"]
    found = first_step(place, start.method | changes, start.loss, cache)
    metric = found.pop("metric")
    return {
        "metric": ratio(metric, plain),
        **{name: ratio(size, metric) for name, size in found.items()},
    }


def broken(start: Start, found: dict[str, Ratio]) -> Iterator[str]:
    """The bounds that the terms beside the metric break."""
    for name, bounds in start.terms.items():
        for what in ("value", "embedding", "features"):
            (low, high), value = getattr(bounds, what), getattr(found[name], what)
            if not low <= value <= high:
                yield f"{name}: {what} {value:.4g}, not {low:g} to {high:g}"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.name)
def test_every_term_is_within_its_bounds(start: Start, place: Place, shared_cache: Path) -> None:
    found = ratios(start, place, shared_cache)
    assert found.keys() == {"metric", *start.terms}
    metric = found["metric"]
    plain = (metric.value, metric.embedding, metric.features)
    assert plain == pytest.approx((start.metric,) * 3, rel=1e-5)
    assert metric.cosine == pytest.approx(1, abs=1e-5)
    assert not list(broken(start, found))


DROWNED = [(start, name) for start in STARTS for name in start.drowned]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("start", "name"), DROWNED, ids=[f"{start.name}: {name}" for start, name in DROWNED]
)
def test_a_drowned_start_is_seen(start: Start, name: str, place: Place, shared_cache: Path) -> None:
    assert list(broken(start, ratios(start, place, shared_cache, **start.drowned[name])))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for given in STARTS:
            if not sys.argv[1:] or given.name in sys.argv[1:]:
                for where in PLACES:
                    print(given.name, where, flush=True)
                    for term, each in ratios(given, where, Path(folder)).items():
                        print(f"  {term}: {each}", flush=True)
