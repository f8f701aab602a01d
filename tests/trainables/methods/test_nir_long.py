"""NIR at the paper's settings on embedded data: a thousand steps in `make soak`, fewer in CI."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.steps import steps
from trainables.core.runtime import Runtime
from trainables.core.trace import Trace
from trainables.core.trainer import Trainer
from trainables.machine.cache_folder import default_cache
from trainables.trial import TrialConfig

STEPS = steps(300)
EPOCHS = -(-STEPS // 22)  # of 22 steps
LEAST = 1e-6  # of the metric term's gradient


def config(epochs: int, **method: Any) -> TrialConfig:
    """Table 1's: Adam 1e-5, proxies × 4000, flow × 50, weight decay 4e-3, no schedule, no clipping,
    batches of 90 with two of a class, 128 dimensions, ω = 0.01, one epoch of warm-up."""
    return TrialConfig.model_validate(
        {
            "data": {"name": "typefaces", "image_size": 64},
            "backbone": {"mode": "frozen"},
            "embedding": {"dim": 128},
            "loss": {"name": "proxy_anchor"},
            "method": {"name": "nir", "omega": 0.01, **method},
            "optimizer": {
                "name": "adam",
                "lr": 1e-5,
                "weight_decay": 4e-3,
                "multipliers": {"proxies": 4000, "auxiliary": 50},
            },
            "schedule": {"name": "constant", "warmup_epochs": 1},
            "training": {"epochs": epochs, "batch_size": 90, "per_class": 2, "clip_value": None},
            "selection": {"every": epochs},
        }
    )


def ratios(monkeypatch: pytest.MonkeyPatch, trial: TrialConfig) -> torch.Tensor:
    """NIR's gradient over the metric term's at each step; a term that is not finite raises."""
    found: list[torch.Tensor] = []
    observe = Trace.observe

    def noted(self: Trace, scalars: dict[str, torch.Tensor]) -> None:
        found.append(scalars["nir_to_metric"])
        observe(self, scalars)

    monkeypatch.setattr(Trace, "observe", noted)
    trainer = Trainer(trial, 0, Runtime("cpu", 1, default_cache(), None))
    for report in trainer.epochs():
        assert not [name for name in report.metrics if name.endswith("/nonfinite")]
    assert all(weight.isfinite().all() for weight in trainer.network.state_dict().values())
    assert trainer.steps >= STEPS
    return torch.stack(found)


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["paper", "code"])
def test_the_recommended_scale_keeps_the_regulariser_alive(
    monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    assert TrialConfig(method={"name": "nir"}).method.scale == "d"  # type: ignore[attr-defined]
    found = ratios(monkeypatch, config(EPOCHS, reading=reading))
    assert found.isfinite().all()
    assert found.min() > LEAST


@pytest.mark.slow
def test_as_printed_it_stays_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it stays alive is measured in `search_spaces/nir.yaml` and told in its report."""
    found = ratios(monkeypatch, config(EPOCHS, scale="none"))
    assert found.isfinite().all()
    assert found[0] > LEAST
