"""What trains without a driver does so where none of Ray, MLflow, Optuna and faiss is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# As sitecustomize, so that it holds in the processes that a process starts as well.
BAR = """
from importlib.machinery import PathFinder

BARRED = {"ray", "mlflow", "optuna", "faiss"}

real = PathFinder.find_spec

def found(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in BARRED else real(name, path, target)

PathFinder.find_spec = classmethod(found)
"""
SCRIPT = """
import sys
from sitecustomize import BARRED

for name in BARRED:
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(f"{name} was to be barred")

from pathlib import Path
from tests.trainables.core_trials import config
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer

images, cache = map(Path, sys.argv[1:])
trainer = Trainer(config(images, method={"name": "ddml"}), 0, Runtime("cpu", 1, cache))
list(trainer.train_epochs())
final = trainer.finish(("val", "test"))
assert 0 < final.evaluations["test"]["nmi"] <= 1
assert final.evaluations["val"]["recall_at_1"] > 0.5, final.evaluations
assert not BARRED & {name.partition(".")[0] for name in sys.modules}
print("trained")
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with these packages out of reach."""
    (folder / "sitecustomize.py").write_text(BAR)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_trial_trains_without_them(drawn: Path, shared_cache: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "-c", SCRIPT, str(drawn), str(shared_cache))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("trained\n")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_batch_passes_its_tests_without_them(tmp_path: Path) -> None:
    """All but those of kills and signals, which are the longest by far."""
    tests = "tests/trainables/jobs/batch"
    done = run(tmp_path, "-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", tests)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout and "skipped" not in done.stdout
