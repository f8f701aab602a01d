"""The core trains where neither Ray nor MLflow nor Optuna nor faiss can be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from importlib.machinery import PathFinder

BARRED = {"ray", "mlflow", "optuna", "faiss"}

real = PathFinder.find_spec

def found(name, path=None, target=None):
    return None if name.partition(".")[0] in BARRED else real(name, path, target)

PathFinder.find_spec = found

for name in BARRED:
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(f"{name} was to be barred")

from pathlib import Path
from trainables.trial import TrialConfig
from trainables.core.train import train
from trainables.core.runtime import Runtime

config = TrialConfig(
    data={"name": "typefaces", "image_size": 16}, backbone={"mode": "frozen"},
    embedding={"dim": 32}, method={"name": "ddml"}, training={"epochs": 2},
    optimizer={"lr": 1e-3},
)
final = train(config, 0, Runtime("cpu", 1, Path(sys.argv[1])), evaluate=("val", "test"))
assert final.steps > 20, final.steps
assert 0 < final.evaluations["test"]["nmi"] <= 1
chance = 2 / 100
assert final.evaluations["val"]["recall_at_1"] > 3 * chance, final.evaluations
assert not BARRED & {name.partition(".")[0] for name in sys.modules}
print("trained")
"""


def test_trains_on_typefaces_without_them(shared_cache: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(shared_cache)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("trained\n")
