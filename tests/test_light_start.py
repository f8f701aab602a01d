"""What a command imports: help, a fault in a spec and a plan wait for nothing they do not need.

No times: those depend on the machine. Nearly all of a plan's is torch, which it needs: the classes
of losses and methods, which check a trial's options, are torch's modules.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {
    "torch",
    "timm",
    "torchvision",
    "ray",
    "mlflow",
    "optuna",
    "scipy",
    "sklearn",
    "numba",
    "pandas",
    "pyarrow",
    "matplotlib",
    "tensorboardX",
    "wandb",
}


def run(*arguments: str) -> tuple[int, set[str], str]:
    """Exit code, the packages that the command imported, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ablate.run", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in told}
    assert {"ablate", "argparse"} <= names, "nothing is seen"
    return done.returncode, names & HEAVY, done.stdout + done.stderr


def test_help() -> None:
    code, heavy, text = run("--help")
    assert code == 0 and "--plan" in text
    assert heavy == set()


def test_a_fault_in_a_spec(tmp_path: Path) -> None:
    """Whatever can be told without the losses and methods, before they are loaded."""
    spec = tmp_path / "spec.yaml"
    written = "name: x\nstudies:\n  a: {design: grid, grid: {optimizer.lr: [1e-3]}, seed: 3}\n"
    spec.write_text(written, encoding="utf-8")
    code, heavy, text = run(str(spec), "--out", str(tmp_path / "runs"))
    assert code == 2 and "studies.a.seed: the key 'seed'" in text
    assert heavy == set()


@pytest.mark.slow
def test_a_plan(tmp_path: Path) -> None:
    spec = ROOT / "search_spaces" / "idml.yaml"
    code, heavy, text = run(str(spec), "--plan", "--out", str(tmp_path / "runs"))
    assert code == 0 and "trials to run now" in text
    assert heavy <= {"torch", "optuna", "scipy"}  # scipy: what a table will be able to tell
