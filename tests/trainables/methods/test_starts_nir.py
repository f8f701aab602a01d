"""Neither of NIR's terms drowns the other at the start, on frozen features and on a backbone that
trains; and the forms in which one does are seen to.

Two moments, for the flow learns much faster than what it looks at: the first step, and the same
images once the flow alone has made a few steps on them. f(L_NIR) as printed is far too strong in
the one and has switched itself off in the other.

`python -m tests.trainables.methods.test_starts_nir` prints the ratios of all entries.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from tests.trainables.methods.start_bounds import NO, Bounds, Span, broken
from tests.trainables.methods.starts import (
    PLACES,
    PLAIN,
    Place,
    Ratio,
    Size,
    config,
    first_step,
    images,
    ratio,
    size,
    watched,
)
from trainables import streams
from trainables.core.network import build_method
from trainables.methods.base import Progress
from trainables.methods.nir import NIR

Moment = Literal["first", "learnt"]
MOMENTS: tuple[Moment, ...] = ("first", "learnt")
STEPS, RATE = 20, 1e-3  # of the flow alone


def pulls(value: Span, gradient: Span) -> Bounds:
    """The same on the embedding and on the pooled features, but for the head between."""
    return Bounds(value, gradient, gradient)


@dataclass(frozen=True)
class TwoStarts:
    """first, learnt: bounds of all terms but "metric", at the first step and after the flow's. The
    metric term is the plain method's times ω. drowned: changes of `method` that break a bound, in
    both places."""

    name: str
    loss: str
    method: dict[str, Any]
    first: dict[str, Bounds]
    learnt: dict[str, Bounds]
    drowned: dict[str, dict[str, Any]] = field(default_factory=dict)


STARTS = [
    TwoStarts(
        # The first flow makes noise of all embeddings and hardly pulls at them; as it learns, the
        # pull comes near the metric's.
        name="scale d on Proxy-Anchor",
        loss="proxy_anchor",
        method={"omega": 0.01},
        first={"nir": pulls((4.0, 8.0), (0.005, 0.02))},
        learnt={"nir": pulls((0.5, 1.5), (0.2, 3.0))},
        drowned={
            "as printed": {"scale": "none"},
            "as printed, at the other end of the paper's omega": {"scale": "none", "omega": 1e-3},
            "public code": {"reading": "code", "scale": "none"},
            "metric a hundredth of it": {"omega": 1e-4},
            "metric a hundred times it": {"omega": 1.0},
        },
    ),
    TwoStarts(
        name="scale d on Proxy-NCA (Eq. 6)",
        loss="proxy_nca_nir",
        method={"omega": 0.01},
        first={"nir": pulls((5.0, 9.0), (0.008, 0.03))},
        learnt={"nir": pulls((0.5, 1.5), (0.5, 5.0))},
    ),
    TwoStarts(
        # The penalty on centres is of the centres alone.
        name="scale d on SoftTriple",
        loss="soft_triple",
        method={"omega": 0.01},
        first={"nir": pulls((15.0, 30.0), (0.02, 0.08)), "centres": pulls((0.01, 0.05), NO)},
        learnt={"nir": pulls((2.0, 9.0), (0.5, 10.0)), "centres": pulls((0.01, 0.05), NO)},
    ),
]


def after_the_flow_s_steps(
    place: Place, method: dict[str, Any], loss: dict[str, Any], cache: Path
) -> dict[str, Size]:
    """The terms of the first batch after `STEPS` of Adam on the flow, all else held."""
    given = images(place, cache)
    built = build_method(
        config(place, method, loss), features=given.fitted.shape[1], classes=given.classes, seed=0
    )
    assert isinstance(built, NIR)
    built.fit(given.fitted)
    built.train()
    labels, features = given.batch.labels, given.batch.inputs
    if given.backbone is not None:
        with torch.no_grad():
            features = given.backbone(features)
    features = features.detach().requires_grad_()
    optimizer = torch.optim.Adam(built.flow.parameters(), lr=RATE)
    for step in range(STEPS + 1):
        draws = {name: streams.generator(0, name, step) for name in ("method", "loss")}
        with watched(built) as embeddings:
            state = built(features, labels, Progress(), draws["method"])
            terms = built.terms(state, labels, Progress(), draws["loss"])
        if step < STEPS:
            optimizer.zero_grad()
            terms["nir"].value.backward(inputs=list(built.flow.parameters()))
            optimizer.step()
    return {
        name: size(term.weight * term.value, embeddings, features, len(labels))
        for name, term in terms.items()
    }


def ratios(
    start: TwoStarts, place: Place, moment: Moment, cache: Path, **changes: Any
) -> dict[str, Ratio]:
    """The metric term over the plain method's, all others over the metric term."""
    method, loss = {"name": "nir", **start.method, **changes}, {"name": start.loss}
    look = first_step if moment == "first" else after_the_flow_s_steps
    sizes = look(place, method, loss, cache)
    plain, metric = first_step(place, PLAIN, loss, cache)["metric"], sizes.pop("metric")
    others = {name: ratio(each, metric) for name, each in sizes.items()}
    return {"metric": ratio(metric, plain), **others}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.name)
def test_every_term_is_within_its_bounds(
    start: TwoStarts, place: Place, moment: Moment, shared_cache: Path
) -> None:
    found, bounds = ratios(start, place, moment, shared_cache), getattr(start, moment)
    assert found.keys() == {"metric", *bounds}
    metric, omega = found["metric"], start.method["omega"]
    assert (metric.value, metric.embedding) == pytest.approx((omega, omega), rel=1e-4)
    assert metric.cosine == pytest.approx(1, abs=1e-6)
    assert not list(broken(bounds, found))


DROWNED = [(start, name) for start in STARTS for name in start.drowned]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("start", "name"), DROWNED, ids=[f"{start.name}: {name}" for start, name in DROWNED]
)
def test_a_drowned_start_is_seen(
    start: TwoStarts, name: str, place: Place, shared_cache: Path
) -> None:
    """At one moment or the other."""
    assert any(
        list(
            broken(getattr(start, m), ratios(start, place, m, shared_cache, **start.drowned[name]))
        )
        for m in MOMENTS
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_the_printed_form_drowns_the_metric_and_then_switches_itself_off(
    place: Place, shared_cache: Path
) -> None:
    first, learnt = (
        ratios(STARTS[0], place, moment, shared_cache, scale="none")["nir"] for moment in MOMENTS
    )
    assert first.embedding > 2
    assert learnt.embedding < 1e-6


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for start, changes in [(s, c) for s in STARTS for c in ({}, *s.drowned.values())]:
            for where, when in [(place, moment) for place in PLACES for moment in MOMENTS]:
                for term, each in ratios(start, where, when, Path(folder), **changes).items():
                    print(start.name, changes, where, when, f"{term}: {each}")
