"""A trial trains without a driver where Ray, MLflow, Optuna and faiss are not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
from pathlib import Path

for name in ("ray", "mlflow", "optuna", "faiss"):
    sys.modules[name] = None  # its import fails

import trainables.jobs.trial_file
from tests.trainables.core_trials import config
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer

images, cache = map(Path, sys.argv[1:])
trainer = Trainer(config(images, method={"name": "ddml"}), 0, Runtime("cpu", 1, cache))
list(trainer.train_epochs())
final = trainer.finish(("val", "test"))
assert 0 < final.evaluations["test"]["nmi"] <= 1
assert final.evaluations["val"]["recall_at_1"] > 0.5, final.evaluations
"""


@pytest.mark.slow
def test_a_trial_trains_without_them(drawn: Path, shared_cache: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(drawn), str(shared_cache)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
