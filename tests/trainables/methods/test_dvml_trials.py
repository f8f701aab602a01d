"""Whole trials of DVML: phases by epoch, the neutral form, a long run at the paper's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.core_trials import config, timeless
from trainables.core import trainer as core
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer


class Stop(Exception):
    """Stands for a kill at a chosen step."""


# Four epochs of four steps: within the first phase, at its last step, and where it ends in mid
# epoch, at 0.4 · 16 = 6.4 steps.
@pytest.mark.parametrize(("phase1", "cut"), [(0.5, 8), (0.4, 6)])
def test_resumed_in_a_phase_and_where_it_ends(  # noqa: PLR0917
    phase1: float,
    cut: int,
    drawn: Path,
    shared_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = {"name": "dvml", "samples": 3, "hidden": 8, "phase1": phase1}
    trial = config(drawn, method=method)
    whole = Trainer(trial, 0, Runtime("cpu", 1, shared_cache))
    expected = [timeless(report.metrics) for report in whole.train_epochs()]
    weights = [metrics["term/kl/weight"] for metrics in expected]
    assert whole.total_steps == 16
    assert weights == pytest.approx([1, 1 if phase1 == 0.5 else 0.95, 0.8, 0.8])

    monkeypatch.setattr(core, "CHECK_EVERY", 1)
    runtime = Runtime("cpu", 1, shared_cache, tmp_path, checkpoint_seconds=1e-9)
    real = Trainer.step

    def stopped(self: Trainer, *args: Any) -> None:
        if self.steps == cut:
            raise Stop
        real(self, *args)

    with monkeypatch.context() as killed:
        killed.setattr(Trainer, "step", stopped)
        with pytest.raises(Stop):
            list(Trainer(trial, 0, runtime).train_epochs())
    resumed = Trainer(trial, 0, runtime)
    assert resumed.steps == cut
    list(resumed.train_epochs())
    assert [timeless(report.metrics) for report in resumed.history] == expected
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, resumed.network.state_dict()[name]), name
