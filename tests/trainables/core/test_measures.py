"""What a method measures of a split: means with intervals, beside the metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainables.core_trials import config, train
from trainables.core.evaluator import bootstrap_interval
from trainables.core.runtime import EpochReport, Runtime

NAMES = ("uncertainty_original", "uncertainty_mixed", "uncertainty_gap")
TRIALS = {
    "frozen": {"method": {"name": "idml", "mixing": "feature_mixup", "uncertainty_dim": 8}},
    "cutmix": {
        "backbone": {"mode": "finetune"},
        "method": {"name": "idml", "mixing": "cutmix", "uncertainty_dim": 8},
        "training": {"epochs": 1},
    },
    "mixup": {
        "backbone": {"mode": "finetune"},
        "method": {"name": "idml", "uncertainty_dim": 8, "originals": "replaced"},
        "training": {"epochs": 1},
    },
}


@pytest.mark.parametrize("name", list(TRIALS))
def test_uncertainty_of_original_and_mixed_images(
    name: str, drawn: Path, shared_cache: Path
) -> None:
    trial, runtime = config(drawn, **TRIALS[name]), Runtime("cpu", 1, shared_cache)
    reports: list[EpochReport] = []
    final = train(trial, 0, runtime, reports.append, ("val", "test"))
    for split in ("val", "test"):
        actual = final.evaluations[split]
        for measure in NAMES:
            assert actual[f"{measure}_low"] <= actual[measure] <= actual[f"{measure}_high"]
            assert actual[f"{measure}_low"] < actual[f"{measure}_high"]
        difference = actual["uncertainty_mixed"] - actual["uncertainty_original"]
        assert actual["uncertainty_gap"] == pytest.approx(difference, abs=1e-4)
    watched = {"observed/uncertainty_original", "observed/uncertainty_mixed"}
    if name == "mixup":
        watched = {"observed/uncertainty_mixed"}
    found_here = {key for key in reports[0].metrics if key.startswith("observed/uncertainty")}
    assert found_here == watched
    assert not any("uncertainty" in key for key in reports[0].metrics if key.startswith("val/"))
    again = train(trial, 0, runtime, evaluate=("val", "test"))
    assert again.evaluations == final.evaluations


@pytest.mark.slow
def test_bootstrap_covers_as_it_says() -> None:
    rng: Any = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        low, high = bootstrap_interval(rng.normal(3.0, 2.0, 60))
        inside += low <= 3 <= high
    assert 180 <= inside <= 198
    values = rng.normal(size=400)
    low, high = bootstrap_interval(values)
    normal = 1.96 * values.std() / 20
    assert high - low == pytest.approx(2 * normal, rel=0.1)
