"""A pilot's seconds are those of a later trial: what only the first pays for stands apart."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainables import core_trials
from trainables.core.evaluator import Evaluator
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.jobs import pilot as module


def test_what_only_the_first_trial_pays_for_is_not_multiplied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    costs = {"build": [100.0, 2.0], "evaluate": [50.0, 1.0]}
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def costing(name: str, real: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            clock.now += costs[name].pop(0)
            return real(*args, **options)

        return run

    monkeypatch.setattr(module, "Trainer", costing("build", Trainer))
    monkeypatch.setattr(Evaluator, "evaluate_epoch", costing("evaluate", Evaluator.evaluate_epoch))
    config = core_trials.config(core_trials.draw(tmp_path / "images"))
    measured = module.run_pilot(config, 0, Runtime("cpu", 1, tmp_path / "cache"), steps=1)
    assert (measured["setup"], measured["evaluate"]) == (2.0, 1.0)
