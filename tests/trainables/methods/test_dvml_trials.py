"""Whole trials of DVML: phases by epoch, the neutral form, a long run at the paper's settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.core_trials import config
from trainables.config import TrialConfig
from trainables.core import Runtime, Trainer, train
from trainables.methods.dvml import DVML


def metrics(trial: TrialConfig, cache: Path) -> list[dict[str, float]]:
    trainer = Trainer(trial, 0, Runtime("cpu", 1, cache, None))
    return [report.metrics for report in trainer.epochs()]


def test_weights_by_phase_and_what_is_observed(drawn: Path, shared_cache: Path) -> None:
    method = {"name": "dvml", "samples": 3, "hidden": 8}
    first, _, third, _ = metrics(config(drawn, method=method, training={"epochs": 4}), shared_cache)
    weights = {
        "kl": (1, 0.8),
        "reconstruction": (1, 1),
        "generated": (0.1, 0.2),
        "metric": (1, 0.8),
    }
    for name, (one, two) in weights.items():
        assert first[f"term/{name}/weight"] == pytest.approx(one)
        assert third[f"term/{name}/weight"] == pytest.approx(two)
    for name in ("std", "invariant_norm", "variance_norm"):
        assert first[f"observed/{name}"] > 0


@pytest.mark.parametrize("loss", ["proxy_anchor", "triplet_l2"])
def test_a_neutral_trial_is_the_plain_one_bit_for_bit(
    loss: str, drawn: Path, shared_cache: Path
) -> None:
    def evaluations(method: dict[str, Any]) -> dict[str, dict[str, float]]:
        trial = config(
            drawn, loss={"name": loss}, method=method, training={"epochs": 3, "clip_norm": 1.0}
        )
        return train(trial, 0, Runtime("cpu", 1, shared_cache, None)).evaluations

    assert evaluations({"name": "dvml", "samples": 2, **DVML.NEUTRAL}) == evaluations(
        {"name": "plain"}
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("loss", ["triplet_l2", "normsoftmax"])
def test_a_thousand_steps_at_the_papers_settings(loss: str, shared_cache: Path) -> None:
    """T = 20, 512 dimensions, batches of 128, Adam at 1e-4; a value that is not finite would end
    the trial. 59 epochs of 17 steps."""
    trial = TrialConfig(
        data={"name": "typefaces", "image_size": 64},
        backbone={"mode": "frozen", "pool": "avg"},
        loss={"name": loss},
        method={"name": "dvml"},
        optimizer={"name": "adam", "lr": 1e-4, "weight_decay": 0},
        schedule={"name": "constant"},
        training={"epochs": 59, "batch_size": 128, "per_class": 4, "clip_value": None},
        selection={"every": 59},
    )
    trainer = Trainer(trial, 0, Runtime("cpu", 2, shared_cache, None))
    reports = list(trainer.epochs())
    assert reports[-1].steps >= 1000
    assert all(math.isfinite(value) for report in reports for value in report.metrics.values())
    first, last = reports[0].metrics, reports[-1].metrics
    for name in ("kl", "reconstruction"):
        assert last[f"term/{name}/value"] < first[f"term/{name}/value"]
    assert (first["term/generated/weight"], last["term/generated/weight"]) == (0.1, 0.2)
