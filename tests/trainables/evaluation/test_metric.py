"""Metrics of other packages: what an entry point may name, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from trainables.evaluation.metric import METRIC_REGISTRY, Metric, adapt_entry_point, metric
from trainables.words.errors import ConfigError


def spread(rows: Tensor, labels: Tensor) -> float:
    return float(rows.std()) + 0 * len(labels)


def test_a_function_or_a_metric_may_be_named() -> None:
    plain = adapt_entry_point("spread", spread)
    assert (plain.name, plain.reads, plain.unit, plain.direction) == (
        "spread",
        "rows",
        "",
        "maximize",
    )
    declared = Metric("spread", spread, unit="%", direction="minimize")
    assert adapt_entry_point("spread", declared) is declared
    assert not plain.is_own and plain.digest == declared.digest and len(plain.digest) == 8
    assert all(METRIC_REGISTRY[name].is_own for name in METRIC_REGISTRY)


@pytest.mark.parametrize(
    ("name", "found"),
    [("map_at_r", spread), ("Far", spread), ("far", torch), ("far", Metric("other", spread))],
    ids=["known", "capital", "module", "other-name"],
)
def test_what_is_none_is_refused(name: str, found: Any) -> None:
    with pytest.raises(ConfigError, match=r"ablate\.metrics"):
        adapt_entry_point(name, found)


def test_a_name_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    METRIC_REGISTRY.load()
    monkeypatch.setattr(METRIC_REGISTRY, "_components", dict(METRIC_REGISTRY._components))
    assert metric("spread", unit="%")(spread) is spread
    assert METRIC_REGISTRY["spread"].unit == "%" and "spread" in list(METRIC_REGISTRY)
    metric("spread")(spread)  # of a module that is loaded twice
    with pytest.raises(ValueError, match="registered twice"):
        metric("map_at_r")(spread)
