"""A short trial of each method: it trains, and another instruction set changes its rounding alone.

    python -m tests.trainables.test_short_trials IMAGES CACHE

prints the numbers of all. On one machine they are the same bits each time (`test_core`); on another
processor float32 rounds elsewhere, see `TOLERANCE`.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import plain
from tests.trainables.components import method_options
from tests.trainables.core_trials import config
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.methods.base import METHODS

ROOT = Path(__file__).resolve().parents[2]
D = 16  # of `core_trials.config`
# Of the terms' means over an epoch of a few steps, relative: rounding is 2⁻²⁴ = 6e-8, and through
# a network, sums of some hundred numbers and an optimiser that divides small gradients by small
# ones it was seen to grow to 3e-6 (plain against AVX-512 and AVX2). It goes on growing with each
# step: of a network fine-tuned for hundreds of steps the second digit of a metric differs.
TOLERANCE = 1e-4
# DVML's divergence is near zero at the start: a sum over D of 1 + ln σ² − μ² − σ², each rounded
# at 1 or 2 times 2⁻²³, and halved.
SUMMED_NEAR_ZERO = {"term/kl/value": D * 2**-23}


def trained(method: str, images: Path, cache: Path) -> dict[str, float]:
    """Two epochs of the whole network; the terms' values by epoch, and the metrics at the end."""
    trial = config(
        images, method=method_options(method), backbone={"mode": "finetune"}, training={"epochs": 2}
    )
    trainer = Trainer(trial, 0, Runtime("cpu", 1, cache))
    results = {
        f"{report.epoch} {name}": value
        for report in trainer.train_epochs()
        for name, value in report.metrics.items()
        if name.endswith("/value") or name == "train/loss"
    }
    return results | trainer.finish(("test",)).evaluations["test"]


@pytest.mark.parametrize("method", list(METHODS))
def test_each_method_trains(method: str, drawn: Path, shared_cache: Path) -> None:
    results = trained(method, drawn, shared_cache)
    assert all(math.isfinite(value) for value in results.values())
    assert results["2 train/loss"] < results["1 train/loss"]
    # Stripes of seven colours under noise: told apart before anything has trained, and still after.
    assert results["recall_at_1"] > 0.5


@pytest.mark.skipif(not plain.is_plain(), reason="for `python -m tests.plain`")
def test_the_plain_instruction_set_is_in_use() -> None:
    assert torch.backends.cpu.get_cpu_capability() == "DEFAULT"


@pytest.mark.slow
def test_another_instruction_set_changes_rounding_alone(drawn: Path, shared_cache: Path) -> None:
    other = plain.native() if plain.is_plain() else plain.plain()
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, str(drawn), str(shared_cache)],
        env={**other, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)
    for method in METHODS:
        local_values = trained(method, drawn, shared_cache)
        assert local_values.keys() == there[method].keys()
        for name, value in local_values.items():
            if name.endswith("/value") or name.endswith("train/loss"):
                expected = pytest.approx(
                    there[method][name],
                    rel=TOLERANCE,
                    abs=SUMMED_NEAR_ZERO.get(name.partition(" ")[2], 0.0),
                )
                assert value == expected, (method, name)


if __name__ == "__main__":
    images, cache = map(Path, sys.argv[1:])
    json.dump({method: trained(method, images, cache) for method in METHODS}, sys.stdout)
