"""Searches whose axes hang on others: branches that exist where their condition holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ablate.search.searches import SAMPLERS, driven, study

BRANCHES: dict[str, Any] = {
    "method.alpha": {"low": 0, "high": 1, "when": {"method.name": "ddml"}},
    "loss.temperature": {"low": 0.02, "high": 0.5, "when": {"loss.name": "normsoftmax"}},
    "loss": {
        "choice": [
            {"name": "normsoftmax"},
            {"name": "proxy_anchor", "alpha": 16},
            {"name": "proxy_anchor", "alpha": 32},
        ]
    },
    "loss.margin": {
        "low": 0.01,
        "high": 0.5,
        "when": {"loss": [{"name": "proxy_anchor", "alpha": 16}]},
    },
    "method.name": {"choice": ["plain", "ddml"]},
    "method.beta": {
        "low": 0,
        "high": 1,
        "when": {"method.name": ["ddml"], "loss.name": "normsoftmax"},
    },
}


def expected(params: dict[str, Any]) -> set[str]:
    found = {"loss", "method.name"}
    ddml, soft = params["method.name"] == "ddml", params["loss"]["name"] == "normsoftmax"
    found |= {"method.alpha"} if ddml else set()
    found |= {"loss.temperature"} if soft else set()
    found |= {"loss.margin"} if params["loss"].get("alpha") == 16 else set()
    return found | ({"method.beta"} if ddml and soft else set())


@pytest.mark.parametrize(
    "sampler",
    [pytest.param(name, marks=pytest.mark.slow if name == "gp" else ()) for name in SAMPLERS],
)
def test_only_active_axes_are_proposed(sampler: str) -> None:
    made = study(BRANCHES, sampler=sampler, round=2, startup=4)
    budget = 20 if sampler == "gp" else 40
    told = driven(
        made, "key", budget, lambda params: float(len(params)) + params.get("loss.margin", 0)
    )
    for t in told:
        assert set(t.params) == expected(t.params)
        assert list(t.params) == [path for path in BRANCHES if path in t.params]
    assert len({frozenset(t.params) for t in told}) >= 3
    if sampler in ("tpe", "gp"):  # it finds the branch with the most axes
        late = [len(t.params) for t in told[-8:]]
        assert np.mean(late) > np.mean([len(t.params) for t in told[:8]])
